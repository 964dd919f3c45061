"""The verdict on outputs whose origin is known, one or two seeds a case; 20 each are in analysis/claims/diagnose.py."""

import numpy as np
import pytest

from hierattn import Architecture, InputError, Law, Observations, diagnose, kernels
from hierattn.diagnostics import judgement
from hierattn.diagnostics.record import of_scales
from hierattn.diagnostics.subject import Subject
from tests.diagnostics import drawn

GIVEN = {"score_scale": drawn.SCORE_SCALE, "value_scale": 1.0}


def diagnosed(y, K=None, heads=1, **given):
    return diagnose(Observations(y, np.eye(4) if K is None else K, heads=heads), **given)


@pytest.mark.parametrize(
    ("draw", "code", "given"),
    [
        pytest.param(draw, code, given, id=f"{draw.__name__}, scales {'given' if given else 'estimated'}", marks=marks)
        for given in (GIVEN, {})
        for draw, code, marks in [
            (drawn.gaussian, "gaussian", ()),
            (drawn.student, "no_shared_scores", () if given else pytest.mark.slow),
            (drawn.own_scores, "no_shared_scores", ()),
            (drawn.normalised, "normalised", () if given else pytest.mark.slow),
        ]
    ],
)
def test_outputs_without_the_hierarchy_are_told_by_what_they_lack(draw, code, given):
    found = diagnosed(draw(1), **given)
    assert (found.consistent, found.codes[0]) == (False, code)


@pytest.mark.parametrize("given", [GIVEN, {}], ids=["scales given", "scales estimated"])
def test_networks_of_the_law_are_consistent(given):
    found = diagnosed(drawn.law(1), **given)
    assert (found.consistent, found.codes) == (True, [])
    assert found.subject.origin == ("given" if given else "moments")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        pytest.param({"score_scale": 1.3 * drawn.SCORE_SCALE, "value_scale": 1.0}, "score_scale", marks=pytest.mark.slow),
        ({"score_scale": 0.7 * drawn.SCORE_SCALE, "value_scale": 1.0}, "score_scale"),
        pytest.param({"score_scale": drawn.SCORE_SCALE, "value_scale": 1.3}, "scale", marks=pytest.mark.slow),
        ({"score_scale": drawn.SCORE_SCALE, "value_scale": 0.7}, "scale"),
        pytest.param({"score_scale": 0.7 * drawn.SCORE_SCALE}, "score_scale", marks=pytest.mark.slow),  # value_scale estimated
    ],
)
def test_a_wrong_scale_is_named_with_its_estimate(given, code):
    found = diagnosed(drawn.law(2), **given)
    assert (found.consistent, found.codes) == (False, [code])
    truth = {"score_scale": drawn.SCORE_SCALE, "scale": 1.0}[code]
    assert found.reasons[0]["numbers"]["estimate"] == pytest.approx(truth, rel=0.15)


@pytest.mark.parametrize("given", [GIVEN, {}], ids=["scales given", "scales estimated"])
def test_a_wrong_kernel_is_named(given):
    assert diagnosed(drawn.law(3), kernels.rbf(4, 1.0), **given).codes[0] == "kernel"


def test_a_wrong_number_of_heads_is_a_matter_of_spread():
    found = diagnosed(drawn.law(4, layer=Architecture(heads=4, sigma_q=drawn.SCORE_SCALE)), heads=1, **GIVEN)
    assert (found.consistent, found.codes) == (False, ["spread"])


@pytest.mark.parametrize("given", [GIVEN, {}], ids=["scales given", "scales estimated"])
def test_five_networks_decide_nothing(given):
    found = diagnosed(drawn.law(5, networks=5), **given)
    assert found.consistent is None
    assert found.codes[0] == "low_power"


def test_many_heads_cannot_be_told_from_a_gaussian():
    layer = Architecture(heads=256, sigma_q=drawn.SCORE_SCALE)
    found = diagnosed(drawn.law(6, coordinates=16, layer=layer), heads=256, **GIVEN)
    assert found.consistent is None
    assert found.codes[0] == "low_power"
    assert found.powers["gaussian"] < 0.3


def test_without_a_kernel_there_is_no_law():
    found = diagnose(Observations(drawn.law(7, 20, 8), heads=1))
    assert (found.consistent, found.codes, found.examination) == (None, ["unidentified"], None)
    with pytest.raises(InputError, match=r"^kernel: expected a kernel or inputs"):
        diagnose(Observations(drawn.law(7, 20, 8), heads=1), score_scale=1.0)


def test_one_network_decides_nothing():
    assert diagnosed(drawn.law(8, 1, 8), **GIVEN).codes == ["low_power"]


def test_a_kernel_each():
    """Networks with kernels of their own: scales must be given, and are tested."""
    rng = np.random.default_rng(0)
    K = np.stack([kernels.from_inputs(rng.normal(size=(3, 8))) for _ in range(100)])
    y = np.concatenate([drawn.law(m, 1, 32, k, Architecture(heads=1)) for m, k in enumerate(K)])
    obs = Observations(y, K, heads=1)
    assert diagnose(obs, score_scale=1.0, value_scale=1.0).consistent is not False
    assert diagnose(obs, score_scale=1.0, value_scale=1.5).codes == ["scale"]
    with pytest.raises(InputError, match="one kernel for all networks where scales are estimated"):
        diagnose(obs)


HEADS = Architecture(heads=2, sigma_q=np.array([0.4, 3.0]), sigma_v=np.array([1.0, 2.0]))


def test_heads_keep_scales_of_their_own():
    """Outputs of heads that differ: consistent with the layer as it is described, not with the first head's scales."""
    y = drawn.law(12, 150, 16, layer=HEADS)
    found = diagnose(Observations(y, np.eye(4), layer=HEADS))
    assert found.consistent is not False
    np.testing.assert_array_equal(found.subject.law.layer.score_scale, [0.4, 3.0])
    record = of_scales(found)
    assert (record["score_scale"], record["value_scale"]) == ([0.4, 3.0], [1.0, 2.0])
    assert (record["score_scale_error"], found.subject.origin) == (0.0, "given")
    assert found.predictive["excess kurtosis"].p_value > 0.01
    same = diagnose(Observations(y, np.eye(4), heads=2), score_scale=0.4, value_scale=1.0)
    assert same.consistent is False


def test_heads_that_are_all_off_are_off_by_a_factor():
    y = 1.5 * drawn.law(13, 150, 16, layer=HEADS)
    found = diagnose(Observations(y, np.eye(4), layer=HEADS))
    assert (found.consistent, found.codes) == (False, ["scale"])
    assert found.reasons[0]["numbers"]["factor"] == pytest.approx(1.5, rel=0.1)


@pytest.mark.parametrize("name", ["score_scale", "value_scale"])
def test_a_scale_for_heads_that_differ_is_refused(name):
    observations = Observations(drawn.law(14, 20, 4, layer=HEADS), np.eye(4), layer=HEADS)
    with pytest.raises(InputError, match=f"^{name}: expected none for a layer whose heads have scales of their own"):
        diagnose(observations, **{name: 1.0})
    with pytest.raises(InputError, match=r"^layer: expected equal heads where scales are estimated"):
        diagnose(Observations(drawn.law(14, 20, 4, layer=HEADS), np.eye(4), heads=2), HEADS)


def test_what_is_printed_says_what_it_means_and_what_to_do():
    good, bad = diagnosed(drawn.law(1), **GIVEN), diagnosed(drawn.gaussian(1), **GIVEN)
    assert str(good).startswith("CONSISTENT\n\nThe outputs look like draws of the law")
    assert len(str(good).splitlines()) < 25
    assert len(repr(bad).splitlines()) <= 6
    told = " ".join(str(bad).split())
    assert "how much networks differ from each other 0.004 differs from the law" in told
    assert "150 networks would have shown" in told
    assert bad.next_steps[0].startswith("are the networks drawn independently")
    assert "next: " + bad.next_steps[0] in repr(bad)
    nothing = diagnose(Observations(drawn.law(7, 20, 8), heads=1))
    assert "nothing was tested" in str(nothing)
    assert "its kernel or inputs" in " ".join(str(nothing).split())


@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf, np.nan])
def test_scales_are_positive(bad):
    with pytest.raises(InputError, match=r"^score_scale: expected a positive number"):
        diagnosed(drawn.law(9, 20, 8), score_scale=bad)


def test_other_things_are_refused():
    with pytest.raises(InputError, match=r"^subject: expected Observations or a fit, got ndarray"):
        diagnose(np.zeros((3, 2, 1)))


def test_huge_outputs_are_looked_at_in_part():
    obs = Observations(drawn.law(10, 30, 8), np.eye(4), heads=1)
    assert judgement.outputs_of(Subject(obs, None, None, frozenset(), {}, "given")).shape == (30, 4, 8)
    broad = np.lib.stride_tricks.as_strided(np.ones(1), (4, 4, 2**18), (0, 0, 0))
    big = object.__new__(Observations)
    object.__setattr__(big, "outputs", broad)
    assert judgement.outputs_of(Subject(big, None, None, frozenset(), {}, "given")).shape == (2, 4, 2**18)


def test_the_law_of_some_tokens_is_that_of_their_rows():
    y = drawn.law(11, 60, 16, layer=Architecture(mask="causal", sigma_q=1.6))
    found = diagnose(Observations(y[:, [1, 3]], np.eye(4), tokens=[1, 3], heads=1, mask="causal"), **GIVEN)
    assert isinstance(found.subject.law, Law)
    assert found.subject.law.shape == (2, 4)
    assert found.consistent is not False
