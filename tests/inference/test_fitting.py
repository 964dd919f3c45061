"""Fits: both samplers, designs at the edge, what is refused; what is said, and that nothing is NaN."""

import json

import arviz
import numpy as np
import numpyro.distributions as dist
import pytest

from hierattn import InputError, Observations, kernels
from hierattn.inference import predictions
from hierattn.inference.fitting import fit, lookup, route
from hierattn.inference.methods.networkwise import Networkwise
from hierattn.inference.methods.nuts import Nuts
from hierattn.inference.problem import pose
from tests.inference import tiny
from tests.inference.trees import CONDITIONAL, GROUPS, check, codes
from tests.statistics import SIGMAS

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


def test_both_samplers_find_the_same_posterior():
    """A shift of one standard deviation is seen. The networkwise one has finer tests (test_sweeps)."""
    methods = Networkwise(check_every=1, most_draws=1000), Nuts(warm_up=2, chunk=100, most_draws=600)
    problem = pose(tiny.observations(), tiny.LAYER, lookup("limit_law"), None)
    ours, theirs = (route(problem, method, seed=0, chains=2) for method in methods)
    for name in ("score_scale", "value_scale"):
        x, y = np.log(ours.draws[name]), np.log(theirs.draws[name])
        assert agree(x, y)
        assert not agree(x + x.std(), y)
    assert set(theirs.statistics) == {"diverging", "energy", "n_steps", "acceptance_rate", "lp"}


EQUAL = kernels.rbf([0.0, 1.0, 1.0], 1.0)
EACH = np.stack([kernels.equicorrelated(3, rho) for rho in (0.1, 0.2, 0.3, 0.4)])
DESIGNS = {
    "one coordinate": (Observations(Y[..., :1], kernel=tiny.K, heads=2), {"few_networks"}),
    "causal": (tiny.observations(mask="causal"), {"few_networks"}),
    "one network, 256 heads": (tiny.observations(networks=1, heads=256), {"one_network"}),
    "equal tokens": (Observations(Y[:, [1, 1, 1]], kernel=np.full((3, 3), 2.0), heads=2), {"unidentified"}),
    "a kernel a network, two tokens": (Observations(Y[:, :2], kernel=EACH, tokens=[2, 0], heads=2), {"few_networks"}),
    "one token": (Observations(Y[:, :1], kernel="identity", heads=2), {"unidentified"}),
}


@pytest.mark.usefixtures("no_predictions")
@pytest.mark.parametrize("design", DESIGNS)
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
