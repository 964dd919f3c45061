"""Pages that do not rot: tests, sections, files, links and options that they name are there."""

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from tests.graph import parsed

ROOT = Path(__file__).parent.parent
OURS = ("README.md", "CONTRIBUTING.md", "docs/*.md", ".github/ISSUE_TEMPLATE/*.md")
PAGES = sorted(path for pattern in (*OURS, "CHANGELOG.md", "analysis/*.md") for path in ROOT.glob(pattern))
THEORY = (ROOT / "docs" / "theory.md").read_text()
SECTIONS = {int(number): text for number, text in re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", THEORY, flags=re.S | re.M)}
CITED = re.compile(r"THEORY(?: sections?)? (\d+(?:(?:, | and |, and )\d+)*)")
COMING = (  # written at the same time as these pages; to be emptied when all branches are one
    "hierattn/base/files/formats/protocol.py",
    "hierattn/diagnostics/departures/",
    "hierattn/diagnostics/departures/protocol.py",
    "hierattn/diagnostics/explanation.py",
    "hierattn/frameworks/protocol.py",
    "hierattn/inference/calling.py",
    "hierattn/inference/methods/protocol.py",
    "analysis/architecture.py",
    "docs/architecture.svg",
)


def names(pages):
    return [str(page.relative_to(ROOT)) for page in pages]


def prose(page):
    """A page without its code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)


@cache
def defined_in(path):
    if not path.is_file():
        return frozenset()
    return frozenset(node.name for node in ast.walk(parsed(path.read_text())) if isinstance(node, ast.FunctionDef))


def missing_tests(text):
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    return [f"{file}::{test}{elsewhere(test)}" for file, test in named if test not in defined_in(ROOT / file)]


def elsewhere(test):
    """Where a test is that has moved."""
    homes = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if test in defined_in(path)]
    return f" (now in {', '.join(names(homes))})" if homes else ""


def cited_sections(text):
    """Numbers of sections that a text cites, whatever its line breaks."""
    return {int(number) for found in CITED.findall(" ".join(text.split())) for number in re.findall(r"\d+", found)}


def anchors(page):
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page):
    found = []
    for link in re.findall(r"\]\((?!https?://|mailto:)([^)\s]+)\)", prose(page)):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        coming = target.resolve().is_relative_to(ROOT) and str(target.resolve().relative_to(ROOT)) in COMING
        if (not target.exists() and not coming) or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


# the theory


def test_sections_are_numbered_without_gaps():
    assert list(SECTIONS) == list(range(15))


@pytest.mark.parametrize("number", [n for n, text in SECTIONS.items() if "Planned:" not in text])
def test_every_section_says_whether_it_is_exact_and_which_tests_check_it(number):
    text = SECTIONS[number]
    assert "**Status:**" in text
    assert re.search(r"`tests/\S+::\w+`", text)
    assert missing_tests(text) == []


def test_only_long_sequences_are_planned():
    assert [number for number, text in SECTIONS.items() if "Planned:" in text] == [13]


def test_every_section_that_code_cites_is_there_and_says_something():
    cited = {}
    for folder in ("hierattn", "models", "tests", "analysis"):
        for path in (ROOT / folder).rglob("*.py"):
            if path != Path(__file__):
                cited |= dict.fromkeys(cited_sections(path.read_text()), str(path))
    assert {1, 2, 3, 4, 5, 6, 7, 9, 10, 11} <= set(cited)
    assert {number: path for number, path in cited.items() if "**Status:**" not in SECTIONS.get(number, "")} == {}


def test_a_wrong_name_or_number_would_be_seen(tmp_path):
    assert missing_tests("`tests/test_docs.py::test_that_is_not_there`, `tests/nowhere.py::test_x`") == [
        "tests/test_docs.py::test_that_is_not_there",
        "tests/nowhere.py::test_x",
    ]
    assert cited_sections("(THEORY\n    section 4), THEORY 14, THEORY sections 2 and 7") == {2, 4, 7, 14}
    page = tmp_path / "page.md"
    page.write_text("# A heading: here\n[a](gone.md) [b](#a-heading-here) [c](#nothing)\n```\n[d](code.md)\n```\n")
    assert broken_links(page) == ["gone.md", "#nothing"]


# all pages


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_resolve(page):
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_files_and_tests_that_are_named_exist(page):
    paths = re.findall(r"`(?:python )?((?:hierattn|models|analysis|tests|docs)/[\w./-]+)", prose(page))
    assert [path for path in paths if not (ROOT / path).exists() and path not in COMING] == []
    assert missing_tests(prose(page)) == []


def test_formulas_survive_github():
    r"""Markdown takes a backslash before punctuation for its own: \, and \{ never reach the formula."""
    for pattern in OURS:
        for page in ROOT.glob(pattern):
            formulas = re.findall(r"\$\$.*?\$\$|\$[^$\n]+\$", prose(page), flags=re.S)
            assert [formula for formula in formulas if re.search(r"\\[^a-zA-Z]", formula)] == [], page


def test_words_are_plain():
    """ "Per network", not "a row a network"."""
    things = "network|head|token|sequence|matrix|row|line|chain|case|claim|file|group|draw"
    for pattern in OURS:
        for page in ROOT.glob(pattern):
            text = " ".join(prose(page).replace('"a row a network"', "").split())
            assert re.findall(rf"\b(?:one|an?|each) \w+ a (?:{things})\b", text) == [], page


# names that the code knows


def test_score_functions_fields_and_models_are_on_their_pages():
    from hierattn.layer.record import NAMES
    from hierattn.layer.scores import SCORE_FUNCTIONS

    files, fitting = ((ROOT / "docs" / name).read_text() for name in ("files.md", "fitting.md"))
    assert [name for name in SCORE_FUNCTIONS if f"| `{name}` |" not in SECTIONS[14]] == []
    assert [name for name in NAMES if f"`{name}`" not in files] == []
    models = [path.stem for path in (ROOT / "models").glob("*.py") if path.stem != "__init__"]
    assert [name for name in models if f"| `{name}` |" not in fitting] == []


def test_methods_are_on_their_page():
    methods = pytest.importorskip("hierattn.inference.methods.registry").METHODS
    assert [name for name in methods if f"| `{name}` |" not in (ROOT / "docs" / "fitting.md").read_text()] == []


def test_codes_and_tests_are_on_their_page():
    registry = pytest.importorskip("hierattn.diagnostics.departures.registry")
    text = (ROOT / "docs" / "diagnosis.md").read_text()
    assert [code for code in (*registry.CODES, *registry.TESTED) if f"| `{code}` |" not in text] == []


# commands


def option_tables():
    spec = importlib.util.spec_from_file_location("command_line_page", ROOT / "docs" / "command_line.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_has_its_section_and_its_options():
    """Run `python docs/command_line.py` if this fails."""
    page, text = option_tables(), (ROOT / "docs" / "command_line.md").read_text()
    assert text == page.filled(text)
    assert set(page.SECTION.findall(text)) == set(re.findall(r"^## (\w+)$", text, flags=re.MULTILINE)) == set(page.commands())
    for command in page.commands().values():
        assert all(f"`{name}`" in text for name in page.options(command))


def test_examples_use_commands_and_options_that_exist():
    page = option_tables()
    known = {name: {*page.options(command), "--help"} for name, command in page.commands().items()}
    for path in PAGES:
        for line in re.findall(r"^\$ hierattn (.*)$", path.read_text(), flags=re.MULTILINE):
            command, *words = line.split()
            assert command in known, line
            assert {word for word in words if word.startswith("-")} <= known[command], line
