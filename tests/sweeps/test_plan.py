"""Plans: what a function takes, what a file may say, and one line for whatever is wrong."""

import pytest

from hierattn import InputError
from hierattn.sweeps.plan import plan, read_plan
from tests.sweeps import toy

PLAN = """
function = "law"
seed = 3
[over]
heads = [1, 2]
[settings]
moments = true
"""


def test_seeds_are_of_points_and_not_of_places():
    small, large = (plan(toy.numbers, {"a": a}, {"b": 1.0}, seed=5) for a in ([2], [1, 2, 3]))
    assert small.options(0) == large.options(1)
    assert len({large.options(k)["seed"] for k in range(3)}) == 3
    assert plan(toy.numbers, {"a": [2]}, {"b": 1.0}, seed=6).options(0) != small.options(0)
    assert plan(toy.numbers, {"a": [2], "seed": [7]}).options(0)["seed"] == 7
    assert "seed" not in plan(toy.other, {"a": [2]}).options(0)


def test_equal_plans_have_equal_hashes_and_others_have_others():
    same = {plan(toy.numbers, {"a": [1, 2.0]}, {"b": b}).sha256 for b in (1, 1.0)}
    assert len(same) == 1
    others = [
        plan(toy.numbers, {"a": [1, 3]}, {"b": 1}),
        plan(toy.slow, {"a": [1, 2]}),
        plan(toy.numbers, {"a": [1, 2]}, {"b": 1}, seed=1),
        plan(toy.numbers, [{"a": 1}, {"a": 2}], {"b": 1}),
    ]
    assert len(same | {each.sha256 for each in others}) == 5


def test_another_text_of_the_function_is_another_plan(tmp_path):
    found = []
    for number in (1, 2):
        (tmp_path / "mine.py").write_text(f"def f(a):\n    return {{'x': a + {number}}}\n")
        found.append(plan(f"{tmp_path / 'mine.py'}:f", {"a": [1]}).sha256)
    assert found[0] != found[1]


def test_a_file(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    planned = read_plan(tmp_path / "plan.toml")
    assert planned.options(1) | {"seed": 0} == {"heads": 2, "moments": True, "seed": 0}
    (tmp_path / "mine.py").write_text("def f(a, b=1):\n    return {'x': a}\n")
    (tmp_path / "mine.toml").write_text('function = "mine.py:f"\n[[points]]\na = 1\n[[points]]\na = 2\n')
    assert [read_plan(tmp_path / "mine.toml").options(k) for k in (0, 1)] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("function = ", "expected a plan in TOML, got: "),
        ('function = "law"', "expected function, and either [over] or [[points]], got function"),
        ("[over]\na = [1]", "expected function, and either [over] or [[points]], got over"),
        ('function = "law"\nworkers = 2\n[over]\nheads = [1]', "expected function, over, points, seed, settings, got workers"),
        ("function = 3\n[over]\nheads = [1]", "expected the name of a function, got 3"),
    ],
)
def test_what_is_no_plan(tmp_path, text, words):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_plan(path)
    assert str(raised.value).startswith(f"{path}: {words}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("function", "over", "settings", "words"),
    [
        (
            "lw",
            {"heads": [1]},
            {},
            "function: expected one of law, compare, depth, fit, diagnose, replicate, got 'lw'; did you",
        ),
        ("nothing.py:f", {"heads": [1]}, {}, "nothing.py: expected a .py file with a function f, got none"),
        ("law", {"head": [1]}, {}, "over: expected options of law, got head; did you mean heads?"),
        ("depth", {"score_scal": [1]}, {}, "over: expected options of depth, got score_scal; did you mean score_scale?"),
        ("compare", {"heads": [1]}, {}, "settings: expected all that compare needs, got no width"),
        ("law", {"heads": [1]}, {"heads": 2}, "settings: expected options that the points do not have, got heads"),
        (
            "law",
            {"heads": [1]},
            {"kernel": object()},
            "settings: expected numbers and words, which a file can hold, got kernel",
        ),
    ],
)
def test_a_bad_plan_is_one_line(function, over, settings, words):
    with pytest.raises(InputError) as raised:
        plan(function, over, settings)
    assert str(raised.value).startswith(words)


def test_the_seed_is_a_number():
    with pytest.raises(InputError, match=r"seed: expected a whole number below 2\^32, got -1"):
        plan("law", {"heads": [1]}, seed=-1)
