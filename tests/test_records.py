"""Records of claims: what makes them stale, how they resume; and what is written from them and from the import graph."""

import json
import re
import subprocess
import sys
from types import ModuleType

import pytest

from analysis import architecture, overview, verify
from tests.definitions import Graph, graph
from tests.graph import ROOT

ORIGIN = {"version_hierattn": "0.1.0", "version_jax": "1", "command": "python analysis/verify.py toy", "seed": 0}
RECORD = {"cases": {}, "definitions": {"Law": "a", "factor_last": "b", "gone_by": "c"}, **ORIGIN}


def test_a_record_says_why_it_is_stale():
    assert verify.changes(RECORD, RECORD["definitions"], ORIGIN) == ""
    assert verify.changes(None, {}, ORIGIN) == "not on record"
    assert verify.changes({"digest": "a", "cases": {}}, {}, ORIGIN) == "stale, recorded before definitions were"
    now = {"Law": "a", "factor_last": "x", "Law.factor": "d"}
    why = "stale, changed: factor_last; new: Law.factor; gone: gone_by"
    assert verify.changes(RECORD, now, ORIGIN) == why
    other = verify.changes(RECORD, RECORD["definitions"], ORIGIN | {"version_jax": "2", "version_hierattn": "0.2.0"})
    assert other == "stale, made with other: jax (1, not 2)"
    many = verify.changes(RECORD, RECORD["definitions"] | {f"f{n:02d}": "e" for n in range(40)}, ORIGIN)
    assert many.endswith("f10, f11, and 28 more")


def test_a_changed_function_two_levels_down_is_named_for_the_claims_that_reach_it(tmp_path):
    """Two claims, one of which reaches `deep` through `middle`."""
    (tmp_path / "analysis" / "claims").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "shared.py").write_text("def middle(): return deep()\ndef deep(): return 3\ndef other(): return 3\n")
    for claim, used in {"one": "middle", "two": "other"}.items():
        text = f'"""Words."""\nfrom tests.shared import {used}\nCASES = {{"a": {used}}}\n'
        (tmp_path / "analysis" / "claims" / f"{claim}.py").write_text(text)

    def digests():
        return {claim: Graph(tmp_path).digests(f"analysis.claims.{claim}") for claim in ("one", "two")}

    def report():
        return {claim: verify.changes({"definitions": before[claim]}, found, {}) for claim, found in digests().items()}

    before, shared = digests(), tmp_path / "tests" / "shared.py"
    shared.write_text(shared.read_text().replace("def deep(): return 3", 'def deep():\n    "Words."\n    return 3  # why'))
    assert report() == {"one": "", "two": ""}
    shared.write_text(shared.read_text().replace("return 3  # why", "return 4"))
    assert report() == {"one": "stale, changed: deep", "two": ""}


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A claim with two cases that count their runs, the second of which is killed at first."""
    (tmp_path / "analysis" / "claims").mkdir(parents=True)
    source = tmp_path / "analysis" / "claims" / "toy.py"
    source.write_text('"""Words."""\nSEED = 0\nCASES = {"a": 1}\n')
    claim, runs = ModuleType("claims.toy", "Words."), []

    def second():
        runs.append("second")
        if len(runs) == 2:
            raise KeyboardInterrupt
        return {"passed": True, "y": 2}

    claim.SEED = 0
    claim.CASES = {"first": lambda: runs.append("first") or {"passed": True, "x": 1.5}, "second": second}
    monkeypatch.setitem(sys.modules, "claims.toy", claim)
    monkeypatch.setattr(verify, "RESULTS", tmp_path)
    return source, runs


def test_a_killed_run_resumes_and_what_is_on_record_is_not_run_again(toy, tmp_path, capsys):
    source, runs = toy
    with pytest.raises(KeyboardInterrupt):
        verify.verify("toy", False, Graph(tmp_path))
    assert verify.state("toy", Graph(tmp_path)) == "unfinished, 1 of 2 cases to run"
    assert verify.verify("toy", False, Graph(tmp_path))
    assert runs == ["first", "second", "second"]
    assert "passed (on record)  first: x 1.5" in capsys.readouterr().out
    record = json.loads((tmp_path / "toy.json").read_text())
    assert list(record) == ["claim", *verify.origin_of("toy"), "cases", "definitions"]
    assert record["command"] == "python analysis/verify.py toy"
    assert record["cases"]["second"].keys() == {"passed", "y", "seconds"}
    assert verify.state("toy", Graph(tmp_path)) == ""

    assert verify.verify("toy", False, Graph(tmp_path))
    assert len(runs) == 3
    source.write_text('"""Words."""\nSEED = 0\nCASES = {"a": 2}\n')
    assert verify.state("toy", Graph(tmp_path)) == "stale, changed: CASES"
    assert verify.verify("toy", False, Graph(tmp_path))
    assert runs[3:] == ["first", "second"]
    assert verify.verify("toy", True, Graph(tmp_path))
    assert runs[5:] == ["first", "second"]


def test_a_claim_without_its_packages_is_left_alone(toy, tmp_path, capsys):
    source, runs = toy
    source.write_text("def f():\n    import json, nowhere_to_be_found\n")
    assert verify.verify("toy", False, Graph(tmp_path))
    assert capsys.readouterr().out == "toy: not run here: needs nowhere_to_be_found\n"
    assert runs == []
    assert not (tmp_path / "toy.json").exists()
    source.write_text("import programs\n")
    (tmp_path / "analysis" / "programs.py").write_text("")
    assert verify.missing("toy", Graph(tmp_path)) == []


def test_claims_reach_what_they_are_about():
    """Facts that anyone can check by reading, however the claim refers to them."""
    facts = {
        "joint_law": {"Sampled.sample", "Hierarchy.sample_base", "same_joint_law", "dense_sample", "bartlett"},
        "divergence": {"FiniteWidth", "RandomInputs", "against_limit"},  # the first two in a program inside a string
        "netsor": {"gate", "residual_mlp", "crossed", "Limit.expect"},
        "fit_time": {"write_fit", "app fit"},  # by the command
        "frameworks": {"flax_layer", "capture"},
        "ranking": {"compare_models"},
    }
    for claim, names in facts.items():
        assert names <= graph().digests(f"analysis.claims.{claim}").keys(), claim
    assert "write_fit" not in graph().digests("analysis.claims.joint_law")


def test_claims_have_words_a_seed_and_no_list_of_what_they_use():
    for claim in verify.claims():
        text = (ROOT / "analysis" / "claims" / f"{claim}.py").read_text()
        assert re.match(r'"""\w', text), claim
        assert re.search(r"^SEED = \d+$", text, flags=re.MULTILINE), claim
        assert "USES" not in text


def test_the_overview_is_made_of_the_results():
    """`python analysis/overview.py` writes it."""
    assert (ROOT / "analysis" / "README.md").read_text() == overview.overview()


def test_the_overview_counts_and_says_what_is_not_there(tmp_path):
    for folder in ("claims", "benchmarks", "figures", "results/benchmarks"):
        (tmp_path / folder).mkdir(parents=True)
    for path in ("claims/one", "claims/two", "benchmarks/speed", "benchmarks/timing", "fig"):
        (tmp_path / f"{path}.py").write_text(f'"""What {path}\nis. More."""\nmain("fig", compute, draw)\n')
    cases = {"a": {"passed": True, "seconds": 60}, "b": {"passed": False, "seconds": 61}}
    (tmp_path / "results" / "one.json").write_text(json.dumps({"cases": cases}))
    speed = {"ratios": {"ours / theirs": 0.5}, "loop_seconds": 1.15}
    (tmp_path / "results" / "benchmarks" / "speed.json").write_text(json.dumps(speed))
    text = overview.overview(tmp_path)
    assert "| What claims/one is. | `python analysis/verify.py one` | [1 of 2 cases](results/one.json) | 2 min |" in text
    assert "| What claims/two is. | `python analysis/verify.py two` | not on record |  |" in text
    assert "| What fig is. | `python analysis/fig.py` | not on record |  |" in text
    assert "| [ours / theirs = 0.5](results/benchmarks/speed.json) | 1.15 s |" in text
    assert "timing.py" not in text


def test_a_benchmark_keeps_its_ratios_and_says_how_fast_the_host_was(tmp_path):
    code = "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; import timing; timing.ADDITIONS = 10**5; "
    code += "timing.record('toy', {'a / b': 0.123456}, Path(sys.argv[2]))"
    subprocess.run([sys.executable, "-c", code, ROOT / "analysis" / "benchmarks", tmp_path / "new"], check=True)
    record = json.loads((tmp_path / "new" / "toy.json").read_text())
    assert record["ratios"] == {"a / b": 0.123}
    assert record["command"] == "python analysis/benchmarks/toy.py"
    assert record["loop_seconds"] >= 0


def test_the_drawing_is_that_of_the_present_imports():
    """`python analysis/architecture.py` writes it."""
    assert architecture.OUT.read_text() == architecture.draw()


def test_arrows_that_follow_from_others_are_left_out():
    pairs = {("law", "layer"), ("layer", "base"), ("law", "base"), ("finite", "base")}
    assert architecture.reduced(pairs) == [("layer", "base"), ("law", "layer"), ("finite", "base")]
    lanes = architecture.lanes([("finite", "base"), ("law", "numerics"), ("netsor", "law"), ("layer", "numerics")])
    assert lanes == {("law", "numerics"): 0, ("netsor", "law"): 0, ("finite", "base"): 1}
