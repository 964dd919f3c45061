"""Fits: both samplers, designs at the edge, what is refused; what is said, and that nothing is NaN."""

import json
import types
from pathlib import Path

import arviz
import numpy as np
import numpyro.distributions as dist
import pytest

from hierattn import Architecture, InputError, Observations, kernels
from hierattn.inference import predictions
from hierattn.inference.calling import arguments
from hierattn.inference.fitting import fit, lookup, plan, route
from hierattn.inference.methods import nuts
from hierattn.inference.methods.marginal import Marginal
from hierattn.inference.methods.moments import Moments
from hierattn.inference.methods.networkwise import Networkwise
from hierattn.inference.methods.nuts import Nuts
from hierattn.inference.problem import kernel_size, own_priors, pose
from hierattn.models import limit_law
from tests.inference import tiny
from tests.inference.drawn import observe
from tests.inference.trees import CONDITIONAL, GROUPS, check, codes
from tests.statistics import SIGMAS
from tests.variants import variants

pytestmark = pytest.mark.usefixtures("setting_stays")
Y = tiny.outputs()


@pytest.fixture
def no_predictions(monkeypatch):
    """Predictions, which take a while to compile, replaced by zeros."""

    def new_networks(problem, parameters, width, seed):
        return [np.zeros((1, 1, problem.observations.networks, problem.observations.s, 1)) for _ in parameters]

    monkeypatch.setattr(predictions, "new_networks", new_networks)


def agree(x, y):
    """Means and standard deviations of draws (chain, draw) of two samplers, by their effective numbers."""
    sizes = [float(arviz.ess(np.asarray(z))) for z in (x, y)]
    error = np.hypot(*(z.std() / np.sqrt(size) for z, size in zip((x, y), sizes, strict=True)))
    return abs(x.mean() - y.mean()) <= SIGMAS * error and abs(x.std() - y.std()) <= SIGMAS * error / np.sqrt(2)


@pytest.mark.slow
def test_both_samplers_find_the_same_posterior():
    """A shift of one standard deviation is seen. The networkwise one has finer tests (test_sweeps)."""
    methods = Networkwise(check_every=1, most_draws=1000), Nuts(warm_up=2, chunk=75, most_draws=300)
    problem = pose(tiny.observations(), tiny.LAYER, lookup("limit_law"), None)
    ours, theirs = (route(problem, method, seed=0, chains=2) for method in methods)
    for name in ("score_scale", "value_scale"):
        x, y = np.log(ours.draws[name]), np.log(theirs.draws[name])
        assert agree(x, y)
        assert not agree(x + x.std(), y)
    assert set(theirs.statistics) == {"diverging", "energy", "n_steps", "acceptance_rate", "lp"}


SAME = {  # model, layer, and whether its kernel is known
    "finite_head_dim": ("finite_head_dim", tiny.LAYER.replace(head_dim=4, key_value_heads=1), True),
    "finite_head_dim, rotary": ("finite_head_dim", tiny.LAYER.replace(head_dim=4, rotary=np.array([1.0, 0.3])), True),
    "rotary": ("limit_law", tiny.LAYER.replace(rotary=np.array([1.0, 0.3])), True),
    "kernel_unknown": ("kernel_unknown", tiny.LAYER, False),
    "separate_kernels": ("separate_kernels", tiny.LAYER, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME)
def test_every_model_has_the_same_posterior_by_both_samplers(name):
    """As above, entries of kernels too."""
    model, layer, known = SAME[name]
    problem = pose(tiny.observations(kernel=tiny.K if known else None), layer, lookup(model), None)
    methods = Networkwise(check_every=10, most_draws=6000), Nuts(warm_up=3, chunk=100, most_draws=1000)
    ours, theirs = (route(problem, method, seed=0, chains=2) for method in methods)
    assert set(ours.draws) == set(theirs.draws)
    for name in ours.draws:
        x, y = ours.draws[name], theirs.draws[name]
        pairs = [(np.log(x), np.log(y))] if x.ndim == 2 else [(x[..., i, j], y[..., i, j]) for i, j in ((1, 0), (2, 0), (2, 1))]
        for ours_of, theirs_of in pairs:
            assert agree(ours_of, theirs_of), name
            assert not agree(ours_of + ours_of.std(), theirs_of)


EQUAL = kernels.rbf([0.0, 1.0, 1.0], 1.0)
EACH = np.stack([kernels.equicorrelated(3, rho) for rho in (0.1, 0.2, 0.3, 0.4)])
DESIGNS = {
    "one coordinate": (Observations(Y[..., :1], kernel=tiny.K, heads=2), {"few_networks"}),
    "one network, 256 heads": (tiny.observations(networks=1, heads=256), {"one_network"}),
    "equal tokens": (Observations(Y[:, [1, 1, 1]], kernel=np.full((3, 3), 2.0), heads=2), {"unidentified"}),
    "a kernel each, two tokens, causal": (
        Observations(Y[:, :2], kernel=EACH, tokens=[2, 1], heads=2, mask="causal"),
        {"few_networks"},
    ),
    "one token": (Observations(Y[:, :1], kernel="identity", heads=2), {"unidentified"}),
}


@pytest.mark.usefixtures("no_predictions")
@pytest.mark.parametrize("design", variants(DESIGNS, ["one network, 256 heads", "equal tokens", "one token"]))
def test_designs_at_the_edge_end_in_a_flag_and_never_in_nan(design):
    observations, expected = DESIGNS[design]
    result = fit(observations, method=tiny.METHODS, chains=2, log_likelihood=False)
    one_token = observations.s == 1
    check(result, GROUPS if one_token else GROUPS | CONDITIONAL)
    assert result.attrs["method"] == ("marginal" if one_token else "networkwise")
    assert expected <= set(codes(result))
    assert codes(result).count("unidentified") <= 1
    identified = json.loads(result.attrs["identified"])
    assert identified["score_scale"] is False or "unidentified" not in expected
    assert identified["value_scale"] is True


Z = np.zeros((3, 3))
REFUSED = [
    ({"kernel": Z}, {}, "kernel: expected inputs that are not zero, got K = 0"),
    ({"kernel": EQUAL}, {}, "outputs: expected equal outputs for tokens with equal inputs"),
    ({"kernel": np.outer([1, 2, 3.0], [1, 2, 3.0]), "heads": 1}, {}, "outputs: expected 3 tokens with a density"),
    ({"kernel": np.stack([EQUAL] * 4)}, {}, "kernel: expected a kernel with which outputs have a density"),
    ({"heads": None}, {}, "heads: expected the number of heads, got none"),
    ({}, {"layer": tiny.LAYER.replace(heads=3)}, "heads: expected 2, as the observations say, got 3"),
    ({}, {"layer": tiny.LAYER.replace(head_dim=4)}, "head_dim: expected None for the model limit_law, got 4"),
    (
        {"tokens": [0, 2, 1]},
        {"layer": tiny.LAYER.replace(rotary=[1.0])},
        "tokens: expected all of the kernel's tokens in order",
    ),
    ({"kernel": None}, {"model": "finite_head_dim"}, "kernel: expected a kernel, inputs or 'identity', got none"),
    ({}, {"model": "limitlaw"}, "model: expected one of limit_law"),
    ({}, {"model": "nowhere.py"}, "nowhere.py: expected a .py file with a function `model`, got none"),
    ({}, {"model": "linear_scaling"}, "width: expected the width of the networks"),
    ({}, {"method": "magic"}, "method: expected one of auto"),
    (
        {},
        {"method": "marginal", "model": "student_t"},
        "got marginal, which fits limit_law, not the model student_t",
    ),
    ({}, {"prior": {"scale": dist.LogNormal(0.0, 1.0)}}, "prior: expected only score_scale, value_scale, got scale"),
    ({}, {"chains": 0}, "chains: expected a positive whole number, got 0"),
]


@pytest.mark.parametrize(("known", "options", "words"), REFUSED)
def test_what_cannot_be_fitted_is_refused_in_one_line(known, options, words):
    with pytest.raises(InputError) as raised:
        fit(tiny.observations(**known), **options)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_constant_outputs_are_refused():
    with pytest.raises(InputError, match="expected outputs that vary"):
        Observations(np.ones((4, 3, 8)), kernel=tiny.K, heads=2)


DESCRIBED = tiny.LAYER.replace(head_dim=4, bias=np.eye(3))
CONTRADICTIONS = [
    ({"mask": "causal"}, {"mask": np.eye(3, dtype=bool)}, "mask: expected that of the observations, got a layer with another"),
    ({"layer": DESCRIBED}, {"head_dim": 8}, "head_dim: expected 4, as the observations say, got 8; leave one of them out"),
    ({"layer": DESCRIBED}, {"score_function": "identity"}, "score_function: expected softmax, as the observations say"),
    ({"layer": DESCRIBED}, {"scaling": "linear"}, "scaling: expected sqrt, as the observations say, got linear"),
    ({}, {"heads": 3}, "heads: expected 2, as the observations say, got 3"),
]


@pytest.mark.parametrize(("known", "given", "words"), CONTRADICTIONS)
def test_what_observations_and_layer_both_say_must_agree(known, given, words):
    with pytest.raises(InputError) as raised:
        pose(tiny.observations(**known), tiny.LAYER.replace(**given), lookup("limit_law"), None)
    assert words in str(raised.value)


def test_what_only_one_of_them_says_is_taken():
    """And a mask that is the same in other words."""
    lower = np.tri(3, dtype=bool)
    for known, mask in (("causal", None), (None, "causal"), ("causal", lower), (lower, "causal")):
        problem = pose(tiny.observations(mask=known), tiny.LAYER.replace(mask=mask), lookup("limit_law"), None)
        np.testing.assert_array_equal(problem.layer.allowed(3, 3), lower)
    wide = tiny.observations(layer=tiny.LAYER)
    assert pose(wide, tiny.LAYER.replace(head_dim=8), lookup("finite_head_dim"), None).layer.head_dim == 8
    assert pose(tiny.observations(layer=DESCRIBED), tiny.LAYER, lookup("limit_law"), None).layer.head_dim is None


@pytest.mark.parametrize(
    ("scales", "words"),
    [
        ({"sigma_q": [1.0, 2.0]}, "sigma_q: expected one value for all heads where scales are inferred, got [1.0, 2.0]"),
        ({"sigma_k": [1.0, 2.0]}, "sigma_k: expected one value for all heads"),
        ({"sigma_v": 2.0, "sigma_o": [1.0, 2.0]}, "sigma_o: expected one value for all heads"),
    ],
)
def test_heads_with_scales_of_their_own_are_refused(scales, words):
    layer = tiny.LAYER.replace(**scales)
    for refuse in (
        lambda: fit(tiny.observations(), layer=layer),
        lambda: fit(tiny.observations(layer=layer)),
        lambda: route(pose(tiny.observations(), layer, lookup("limit_law"), None), "moments", 0, 2),
    ):
        with pytest.raises(InputError) as raised:
            refuse()
        assert words in str(raised.value)


def test_heads_whose_scales_have_the_same_product_are_alike():
    planned = plan(tiny.observations(), layer=tiny.LAYER.replace(sigma_q=[1.0, 2.0], sigma_k=[2.0, 1.0]))
    assert planned.method.name == "networkwise"


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_is_read(kind, tmp_path):
    np.savez(tmp_path / "y.npz", outputs=Y, kernel=tiny.K, heads=2)
    found = plan(kind(tmp_path / "y.npz")).problem.observations
    np.testing.assert_array_equal(found.S, tiny.observations().S)
    with pytest.raises(InputError, match=r"nowhere\.npz: expected a file"):
        fit(kind(tmp_path / "nowhere.npz"))
    with pytest.raises(InputError, match="observations: expected Observations, or the path of a file of outputs, got ndarray"):
        fit(Y)


SIZE = 64.0  # of the kernel: inputs 8 times as large, whose factors are exact


def in_units(method, size, tokens):
    """Draws of both scales, times what makes them those of a kernel of size 1; the outputs are the same."""
    observations = Observations(Y[:, tokens], kernel=size * tiny.K, tokens=tokens, heads=2)
    problem = pose(observations, tiny.LAYER, lookup("limit_law"), None)
    draws = route(problem, method, seed=3, chains=2).draws
    return np.stack([draws["score_scale"] * size, draws["value_scale"] * size**0.5])


UNITS = {
    "networkwise": (Networkwise(warm_up=0, check_every=1, most_draws=50), [0, 1, 2], 10),
    "moments": (Moments(draws=50, most_points=2**10), [0, 1, 2], None),
    "grid": (Marginal(draws=50), [1], None),
}


@pytest.mark.parametrize("name", variants(UNITS, ["networkwise", "grid"]))
def test_inputs_of_any_size_have_the_same_posterior_in_their_units(name):
    """K = c K' with score_scale q' / c and value_scale o' / sqrt(c) is the same law. Chains agree until rounding has grown."""
    method, tokens, first = UNITS[name]
    one, large = (in_units(method, size, tokens)[..., :first] for size in (1.0, SIZE))
    np.testing.assert_allclose(large, one, rtol=1e-3 if name == "grid" else 1e-5)


def test_importance_sampling_of_inputs_of_any_size():
    """Two coordinates: few enough. The same scores, so that only where surfaces are interpolated differs."""
    layer, draws = Architecture(heads=2), []
    for size in (1.0, 100.0):
        problem = pose(
            observe(layer.with_scales(1 / size, size**-0.5), size * np.eye(2), 30, 2), layer, lookup("limit_law"), None
        )
        found = route(problem, Marginal(draws=200), seed=0, chains=1).draws
        draws.append([found["score_scale"] * size, found["value_scale"] * size**0.5])
    np.testing.assert_allclose(draws[1], draws[0], rtol=1e-2)


def test_nuts_starts_with_scores_of_size_one():
    """Also where K is a correlation matrix that is inferred; not where the prior excludes it."""
    observations = tiny.observations(kernel=SIZE * tiny.K)
    for model, size in (("limit_law", SIZE), ("kernel_unknown", 1.0)):
        problem = pose(observations, tiny.LAYER, lookup(model), None)
        start = nuts.start(problem, arguments(problem, None, observed=True))
        assert start == {"score_scale": 1 / size, "value_scale": observations.scale / size**0.5}
    bounded = pose(observations, tiny.LAYER, lookup("limit_law"), {"score_scale": dist.Uniform(1.0, 2.0)})
    assert list(nuts.start(bounded, arguments(bounded, None, observed=True))) == ["value_scale"]


def test_priors_of_ones_own_model_may_take_the_scale_alone():
    of_one, of_both = (types.SimpleNamespace(priors=priors) for priors in (lambda scale: {"x": scale}, limit_law.priors))
    assert own_priors(of_one, 3.0, 100 * np.eye(2)) == {"x": 3.0}
    assert own_priors(types.SimpleNamespace(), 3.0, np.eye(2)) == {}
    assert float(own_priors(of_both, 1.0, np.stack([np.eye(2), 3 * np.eye(2)]))["score_scale"].icdf(0.5)) == pytest.approx(0.5)
    assert kernel_size(None) == kernel_size(np.zeros((2, 2))) == 1.0
