"""Definitions and what they reach: every way of referring to one, and what counts as a change of its code."""

import ast
import shutil

import pytest

from tests.definitions import Graph, graph
from tests.graph import ROOT, files

CLAIMS = sorted(module for module in files() if module.startswith("analysis.claims."))
HOUSE = {
    "hierattn/__init__.py": """
        from importlib import import_module
        _HOMES = {"Law": "law.law"}
        __version__ = "1"
        prepare()
        """,
    "hierattn/base/__init__.py": "",
    "hierattn/base/moved.py": 'PUBLIC = {"kernels": "law.kernels"}',
    "hierattn/law/__init__.py": "",
    "hierattn/law/kernels.py": """
        def rbf(s):
            "A kernel."
            return s + WIDTH
        WIDTH = 3
        def other(): return 1
        """,
    "hierattn/law/law.py": """
        from hierattn.law import kernels
        from hierattn import __version__
        class Law(NamedTuple):
            K: float
            def __init__(self): self.K = kernels.rbf(2)
            def sample(self): return draw(self)
            def moments(self): return integrate(self)
        def draw(law): return 7
        def integrate(law): return 8
        """,
    "hierattn/command_line/app.py": """
        app = Typer()
        @app.command("law")
        def print_law(): return draw_law()
        def draw_law(): return 1
        app.command("fit")(write_fit)
        def write_fit(): return import_module(f"hierattn.models.{name}")
        def run(): app()
        """,
    "models/__init__.py": "",
    "models/one.py": "def model(): return 1",
    "models/two.py": "def model(): return 2",
    "tests/__init__.py": "",
    "tests/conftest.py": "def a_law(): return kernel()\ndef kernel(): return 1",
}


def house(tmp_path, **others):
    """The graph of a small house, and of files put in it; `/` is `__` in their names."""
    more = {name.replace("__", "/") + ".py": text for name, text in others.items()}
    for name, text in (HOUSE | more).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = text.splitlines()
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        path.write_text("\n".join(line[indent:] for line in lines) + "\n")
    return Graph(tmp_path)


def reached(tmp_path, text, start="tests__start"):
    """Bare names of what a file with this text reaches in other files."""
    module = start.replace("__", ".")
    return {key.partition(":")[2] for key, distance in house(tmp_path, **{start: text}).reached(module).items() if distance}


@pytest.mark.parametrize(
    "text",
    [
        "from hierattn.law.kernels import rbf as f\nx = f(1)",
        "from hierattn.law import kernels\nx = kernels.rbf(1)",
        "from hierattn import kernels\ndef f(): return kernels.rbf",
        "import hierattn as ha\nx = [ha.kernels.rbf(i) for i in y]",
        "import hierattn.law.kernels\nx = hierattn.law.kernels.rbf(1)",
        "def f():\n    from hierattn.law.kernels import rbf\n    return lambda: rbf(1)",
        "import hierattn as ha\ndef f(rbf, kernels):\n    def g():\n        return ha.kernels.rbf\n    return g",
        'PROGRAM = """\nfrom hierattn import kernels\nprint(kernels.rbf({s}))\n"""',
        'from hierattn.law.kernels import rbf\n@f(rbf)\ndef g(x: int = 2): "Words."',
        "from hierattn.law.kernels import rbf\nTABLE = {}\nTABLE['rbf'] = rbf",
    ],
)
def test_a_reference_is_resolved_however_it_is_written(tmp_path, text):
    assert reached(tmp_path, text) == {"rbf", "WIDTH"}


def test_names_of_a_functions_own_are_no_references(tmp_path):
    text = """
        from hierattn import Law
        from hierattn.law.kernels import rbf, other
        def f(rbf): return rbf(1)
        def g():
            rbf = 1
            return rbf + sum(other for other in range(rbf))
        def h(x: Law) -> other: return x.rbf
        """
    assert reached(tmp_path, text) == set()


def test_a_name_changed_inside_a_function_is_still_the_modules(tmp_path):
    assert reached(tmp_path, "from hierattn.law.kernels import WIDTH\ndef f(): WIDTH[0] = 1") == {"WIDTH"}


def test_a_module_passed_around_is_all_of_it(tmp_path):
    everything = {"rbf", "WIDTH", "other"}
    assert reached(tmp_path, "from hierattn.law import kernels\nx = kernels") == everything
    assert reached(tmp_path, "from hierattn.law import kernels\nx = getattr(kernels, 'r' + 'bf')") == everything
    assert reached(tmp_path, "x = import_module('hierattn.law.kernels')") == everything
    assert reached(tmp_path, "from hierattn.law import kernels\nx = kernels.__name__") == set()


def test_methods_are_reached_once_they_are_mentioned(tmp_path):
    made = {"Law", "Law.__init__", "rbf", "WIDTH"}
    assert reached(tmp_path, "from hierattn import Law\nx = Law()") == made
    assert reached(tmp_path, "from hierattn import Law\nx = Law().sample()") == made | {"Law.sample", "draw"}
    assert reached(tmp_path, "from hierattn import Law\nx = getattr(Law(), 'moments')") == made | {"Law.moments", "integrate"}
    mine = "class Mine({}):\n    def called(self): return 1"
    for base, methods in {"foreign.Base": {"Mine", "Mine.called"}, "ABC": {"Mine"}}.items():
        found = house(tmp_path, tests__mine=mine.format(base), tests__start="from tests.mine import Mine\nx = Mine()")
        assert {key for key in found.reached("tests.start") if "mine" in key} == {f"tests.mine:{name}" for name in methods}


def test_commands_and_models_are_reached_by_their_words(tmp_path):
    program = "COMMAND = [Path(executable).parent / 'hierattn', {}]"
    assert reached(tmp_path, program.format("'law'")) == {"run", "app", "print_law", "draw_law"}
    fit = house(tmp_path, tests__start=program.format("'fit', '--model', 'two'")).reached("tests.start")
    assert {key for key in fit if "models" in key} == {"hierattn.models.two:model"}
    assert "hierattn.command_line.app:print_law" not in fit


def test_fixtures_and_scripts_beside_each_other_are_found(tmp_path):
    assert reached(tmp_path, "def test_it(a_law): pass") == {"a_law", "kernel"}
    claim = "import programs\nx = programs.gate()"
    found = house(tmp_path, analysis__programs="def gate(): return 1", analysis__claims__toy=claim)
    assert "analysis.programs:gate" in found.reached("analysis.claims.toy")


def test_statements_that_make_a_name_belong_to_it(tmp_path):
    base = "CASES = {{}}\nfor n in (1, 2):\n    CASES[n] = {}\nCASES |= {{3: 3}}\n"
    digests = [house(tmp_path, tests__start=base.format(n)).digests("tests.start") for n in ("n", "-n")]
    assert {name for name in digests[0] if digests[0][name] != digests[1][name]} >= {"CASES"}
    module = "import jax\njax.config.update('x64', {})\ndef f(): pass\n"
    user = "from tests.config import f\nx = f()"
    found = [house(tmp_path, tests__config=module.format(x), tests__start=user).digests("tests.start") for x in (True, False)]
    assert [name for name in found[0] if name not in found[1]] == ["at import: jax.config.update('x64', True)"]


def test_words_layout_and_types_are_not_code(tmp_path):
    plain = "from hierattn.law import kernels\ndef f(x): return kernels.rbf(x) + 1\nclass A(NamedTuple):\n    x: int = 1\n"
    other = """
        # words
        import hierattn as ha
        def f(x: "Float[Array, 's']") -> int:
            "Words."
            from os import path
            return (ha.kernels.rbf(x)
                    + 1)
        class A(NamedTuple):
            "Words."
            x: float = 1
            "Words."
        """
    digests = [house(tmp_path, tests__start=text).digests("tests.start") for text in (plain, other)]
    assert digests[0] == digests[1]
    option = "def f(n: Annotated[int, Option(min={})]): pass"
    digests = [house(tmp_path, tests__start=option.format(n)).digests("tests.start") for n in (1, 2)]
    assert digests[0] != digests[1]


def test_exchanging_two_definitions_of_one_name_is_a_change(tmp_path):
    text = "from hierattn.models import one, two\ndef f(): return {}.model()\ndef g(): return {}.model()\n"
    texts = (text.format("one", "two"), text.format("two", "one"))
    digests = [house(tmp_path, tests__start=text).digests("tests.start") for text in texts]
    assert {name for name in digests[0] if digests[0][name] != digests[1][name]} == {"f", "g"}


def test_renaming_a_module_is_no_change_even_beneath_a_name_with_two_bearers(tmp_path):
    start = "from hierattn.models import one, two\nfrom hierattn.law import {0}\nx = (one.model(), two.model(), {0}.rbf, {0})\n"
    found = []
    for name in ("kernels", "covariances"):
        model = f"from hierattn.law import {name}\ndef model(): return {name}.rbf({{}})\n"
        files = {f"hierattn__law__{name}": HOUSE["hierattn/law/kernels.py"], "tests__start": start.format(name)}
        files |= {f"models__{which}": model.format(number) for number, which in enumerate(("one", "two"))}
        found.append(house(tmp_path / name, **files))
    assert found[0].digests("tests.start") == found[1].digests("tests.start")
    assert [graph.code_of("hierattn.models.one:model").count("rbf") for graph in found] == [1, 1]
    assert found[0].code_of("hierattn.models.one:model") == found[1].code_of("hierattn.models.one:model")
    assert found[0].code_of("hierattn.models.one:model") != found[0].code_of("hierattn.models.two:model")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of all code but tests that no claim reaches."""
    root, known = tmp_path_factory.mktemp("copy"), graph()
    reached = {key.partition(":")[0] for claim in CLAIMS for key in known.reached(claim)}
    for module, path in known.files.items():
        if module.startswith("tests.") and module not in reached and path.name != "__init__.py":
            continue
        place = root / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return root


def digests(found):
    return {module.rpartition(".")[2]: found.digests(module) for module in CLAIMS}


def test_moving_code_and_changing_words_leave_digests_a_changed_number_does_not(copy):
    """In the whole checkout: `_bartlett` moves to a new file; then a number in it changes, several levels beneath a claim."""
    wishart = copy / "hierattn" / "numerics" / "wishart.py"
    text = wishart.read_text()
    (moving,) = [node for node in ast.parse(text).body if getattr(node, "name", "") == "_bartlett"]
    lines = text.splitlines(keepends=True)
    body = "".join(lines[moving.lineno - 1 - len(moving.decorator_list) : moving.end_lineno])
    imports = "".join(line for line in lines if line.startswith(("import ", "from ")))
    rest = text.replace(body, "").replace('"""', '"""Other words. ', 1)
    wishart.with_name("triangles.py").write_text(f"{imports}from hierattn.numerics.wishart import chi_square\n\n\n{body}")
    wishart.write_text(rest + "\n\nfrom hierattn.numerics.triangles import _bartlett  # noqa\n")
    before, moved = digests(graph()), Graph(copy)
    assert "hierattn.numerics.triangles:_bartlett" in moved.reached("analysis.claims.joint_law")
    assert digests(moved) == before

    changed = wishart.with_name("triangles.py")
    changed.write_text(changed.read_text().replace("dtype), -1)", "dtype), -2)"))
    after = digests(Graph(copy))
    stale = {name for name in after if after[name] != before[name]}
    assert stale == {name for name in before if "_bartlett" in before[name]}
    assert {"joint_law", "finite_width"} <= stale < before.keys()
    assert {name for name in after["joint_law"] if after["joint_law"][name] != before["joint_law"][name]} == {"_bartlett"}
