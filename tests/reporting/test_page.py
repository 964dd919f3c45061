"""The page: well formed, self-contained, honest about its numbers, and deaf to what users call their files."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from hierattn import Architecture, InputError, Observations, diagnose, report
from hierattn.diagnostics import power, reference
from hierattn.inference.arrays import in_lines
from hierattn.reporting import figures, page
from hierattn.reporting import svg as drawing
from tests.diagnostics import drawn
from tests.reporting import trees

VOID = {"meta", "link", "br", "img", "hr", "input"}
PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</td></tr></table><iframe src=javascript:alert(1)>",
    "<svg onload=alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "{{ 7 * 7 }}",
    "{% include '/etc/passwd' %}",
    "--><b>bold</b><!--",
    "<![CDATA[<b>x</b>]]>",
    "&lt;b&gt;already escaped&lt;/b&gt;",
    "$\\frac{1}{2}$",
    "<base href=//evil.example>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<form action=//evil.example><input name=q>",
    "\u202etxt.exe <b>",
    "\x00<b>\x1b[31m",
]


class Page(HTMLParser):
    """Elements with their attributes, text by element, and whether every element that opens is closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.texts, self.drawn = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.drawn.append(any(name == "svg" for name, _ in self.open))
        self.texts.append("")
        if tag not in VOID:
            self.open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.drawn.append(any(name == "svg" for name, _ in self.open))
        self.texts.append("")

    def handle_endtag(self, tag):
        assert self.open[-1][0] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        for _, index in self.open:
            self.texts[index] += data

    def of(self, tag, **attributes):
        """Indices of elements with these attributes."""
        return [i for i, (t, a) in enumerate(self.elements) if t == tag and all(a.get(k) == v for k, v in attributes.items())]

    def skeleton(self):
        """Names of elements and of their attributes, in order; inside figures, whose ticks may differ, the kinds there are."""
        named = [(tag, tuple(attributes)) for tag, attributes in self.elements]
        inside = {name for name, drawn in zip(named, self.drawn, strict=True) if drawn}
        return [name for name, drawn in zip(named, self.drawn, strict=True) if not drawn], inside


@pytest.fixture(scope="module")
def raw():
    return diagnose(Observations(drawn.law(0, 40, 16), np.eye(4), heads=1))


@pytest.fixture(scope="module")
def fitted():
    tree, other = trees.fit(), trees.fit(offset=-3.0)
    return diagnose(tree), {"limit_law": tree, "rival": other}


@pytest.fixture(scope="module")
def page_of_fits(fitted):
    return page.render(*fitted)


@pytest.fixture(scope="module")
def page_of_one_fit(fitted):
    return page.render(fitted[0])


@pytest.fixture(scope="module", params=["raw", "fit"])
def shown(request, raw, fitted):
    """A page, and the diagnosis it shows."""
    return (page.render(raw), raw) if request.param == "raw" else (request.getfixturevalue("page_of_fits"), fitted[0])


@pytest.fixture
def text(shown):
    return shown[0]


def test_it_is_small_and_asks_for_nothing(text):
    found = Page(text)
    assert len(text.encode()) < 3e6
    assert not found.of("script")
    assert not found.of("img")
    for _, attributes in found.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href", "action"):
                assert value.startswith(("#", "data:,")), (name, value)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_ids_are_unique_and_links_lead_somewhere(text):
    found = Page(text)
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {attributes["href"][1:] for _, attributes in found.elements if attributes.get("href", "").startswith("#")}
    assert targets <= set(ids)


def test_every_figure_is_described_and_says_what_it_means(text):
    found = Page(text)
    figures, pictures, lines = found.of("figure"), found.of("svg", role="img"), found.of("p", **{"class": "means"})
    assert len(figures) == len(pictures) == len(lines) >= 6
    for index in pictures:
        (alt,) = found.of("span", id=found.elements[index][1]["aria-labelledby"])
        assert len(found.texts[alt]) > 30
    for index in lines:
        assert found.texts[index].startswith("What this means. ")
        assert any(letter.isdigit() for letter in found.texts[index]) or "nothing" in found.texts[index].lower()


def test_the_numbers_are_those_of_the_record(shown):
    found, record = Page(shown[0]), shown[1].record
    cells = {a["data-record"]: found.texts[i].strip() for i, (_, a) in enumerate(found.elements) if "data-record" in a}
    assert cells == {key: page.number(value).strip() for key, value in record.items() if key not in ("reasons", "next_steps")}
    for name in record:
        for index in found.of("td", **{"data-key": name}):
            assert found.texts[index] == page.number(record[name])
    json.dumps(record, allow_nan=False)


def test_it_says_what_the_verdict_lets_one_do_and_what_to_do_next(shown):
    """In the header; and whether a Gaussian would do, with its numbers. No words that only we understand."""
    text, diagnosis = shown
    plain = " ".join(Page(text).texts[0].split())
    assert page.words.meaning(diagnosis) in plain
    for step in diagnosis.next_steps:
        assert step[1:] in plain
    assert f"token {diagnosis.record['gaussian_token']}" in plain
    assert f"{100 * abs(diagnosis.record['gaussian_quantile_error_999']):.2g} % too small" in plain
    for word in ("speaks of", "not refused", "tokens otherwise", "scores of their own", "given in advance", "every token"):
        assert word not in plain


def test_figures_say_which_tokens_they_show():
    """Six tokens under a causal mask: the four that see most keys, and the histogram of the last, which sees all."""
    y = drawn.law(0, 12, 4, np.eye(6), Architecture(mask="causal", sigma_q=1.6))
    found = diagnose(Observations(y, np.eye(6), heads=1, mask="causal"), score_scale=1.6, value_scale=1.0)
    assert found.tokens == found.record["tokens_looked_at"] == [5, 4, 3, 2]
    panel = figures.kurtosis(found)
    assert "4 of 6 tokens, of those that see most keys (2, 3, 4, 5)" in panel.read
    assert f"Token 5 has an excess kurtosis of {found.record['excess_kurtosis_observed'][5]:.3g}" in panel.means
    assert f"the law says {found.record['excess_kurtosis_law'][0]:.3g}" in panel.means
    assert "mean square of token 5" in figures.hierarchy(found).svg
    assert found.record["excess_kurtosis_law"][0] == pytest.approx(found.subject.law.moments(5).excess_kurtosis, rel=1e-4)


def test_a_fit_adds_its_own_sections(page_of_fits, page_of_one_fit):
    text = page_of_fits
    for title in ("Do the chains agree?", "Predicted outputs", "Leave-one-network-out calibration", "Which model predicts"):
        assert title in text
    assert "limit_law predicts new networks best, clearly" in text
    assert "Which model predicts" not in page_of_one_fit


def test_an_inferred_matrix_is_a_line_and_a_figure(fitted, page_of_one_fit):
    """Whatever it is called; no row of the table is one of its entries."""
    tree, name = fitted[1]["limit_law"].copy(), "<blink>K"
    x = np.random.default_rng(0).uniform(-1, 1, (2, 60, 9, 9)).cumsum(axis=-1)
    tree["posterior"] = (
        tree["posterior"].to_dataset().assign({name: (("chain", "draw", "token", "token_"), x @ x.swapaxes(-1, -2))})
    )
    draws = {name: np.asarray(tree["posterior"][name])}
    rows = json.loads(tree.attrs["parameters"])
    rows |= {entry: trees.ROW | {"identified": True} for entry in (f"{name}[0,1]", f"{name}[0,2]")}
    tree.attrs |= {"parameters": json.dumps(rows), "arrays": json.dumps(in_lines(draws, rows))}
    found = Page(text := page.render(replace(fitted[0], subject=fitted[0].subject._replace(tree=tree))))
    assert len(found.of("td")) == len(Page(page_of_one_fit).of("td")) + 8
    assert f"The inferred {name}" in found.texts[0]
    assert "45 entries" in found.texts[0]
    assert f"{name}[0,1]" not in found.texts[0]
    assert not found.of("blink")
    mean = draws[name].mean(axis=(0, 1))
    assert f"to {np.triu(mean, 1).max():.2f} +- " in found.texts[0]
    assert text.count('id="matrix-0-alt"') == 1


def test_users_words_are_only_words(monkeypatch):
    """In names of files and models, and in attributes: the page has the same elements as with harmless words."""
    monkeypatch.setattr(power, "CURVE", (5, 12))
    monkeypatch.setattr(reference, "POOL", 2**10)

    def skeleton(words):
        said = [{"code": words, "message": words, "numbers": {}}]
        tree = trees.fit(networks=12, coordinates=4, draws=20, words=words, reasons=said)
        diagnosis = diagnose(tree)
        return Page(page.render(diagnosis, {words: tree, "rival": trees.fit(12, 4, 20, offset=-3.0)})).skeleton()

    harmless = skeleton("outputs.npz")
    assert skeleton("".join(PAYLOADS)) == harmless


@pytest.mark.parametrize("words", PAYLOADS)
def test_each_payload_in_the_template(words, raw):
    """The whole template with one payload as the outputs' source; figures are not drawn again."""
    subject = raw.subject._replace(observations=_named(raw.subject.observations, words))
    renamed = replace(raw, subject=subject)
    renamed.__dict__["record"] = raw.record | {"source": words, "command": f"hierattn diagnose {words}"}
    drawn_once = page.template("notebook.html").render(diagnosis=renamed, words=page.words, panels=[], raw=page.Markup)
    harmless = page.template("notebook.html").render(diagnosis=raw, words=page.words, panels=[], raw=page.Markup)
    assert Page(drawn_once).skeleton() == Page(harmless).skeleton()


def _named(observations, words):
    from hierattn.observed.observations import Observations as Kind

    renamed = object.__new__(Kind)
    renamed.__dict__.update(vars(observations) | {"source": words})
    return renamed


def test_the_file_is_written_whole_or_not_at_all(raw, tmp_path):
    out = tmp_path / "report.html"
    assert report(raw, out) is raw
    before = out.read_bytes()
    assert before.startswith(b"<!doctype html>")
    with pytest.raises(InputError, match="one that exists"):
        report(raw, out)
    assert out.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [out]


def test_notebooks_show_the_verdict(raw):
    found = Page(raw._repr_html_())
    assert raw.verdict in found.texts[0]
    assert len(found.of("svg", role="img")) == 3


def test_fits_that_did_not_converge_decide_nothing():
    tree = trees.fit(verdict="NOT CONVERGED", reasons=[{"code": "rhat", "message": "chains disagree", "numbers": {}}])
    found = diagnose(tree)
    assert (found.consistent, found.codes[0]) == (None, "not_converged")
    assert "chains disagree" in found.reasons[0]["message"]


def test_colours_follow_the_page():
    with drawing.axes() as (figure, ax):
        ax.plot([0, 1])
        ax.set_xlabel(drawing.plain("$x$ \\frac"))
        text = drawing.svg(figure, "one")
    assert "currentColor" in text
    assert drawing.INK not in text
    assert "$x$" in text
