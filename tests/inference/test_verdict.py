"""Diagnostics fire where they must, name what is wrong, and stay silent on good draws."""

import json
from functools import partial

import numpy as np
import pytest
import xarray as xr

from hierattn import Architecture, Observations
from hierattn.inference import identifiability, verdict
from hierattn.inference.fitting import lookup
from hierattn.inference.identifiability import never_identified, of_design
from hierattn.inference.methods.networkwise import Networkwise
from hierattn.inference.methods.nuts import Nuts
from hierattn.inference.problem import pose
from hierattn.inference.tree import table

CHAINS, DRAWS = 4, 1000


def good(seed=0):
    """Independent draws and statistics, as a sampler that works leaves them."""
    rng = np.random.default_rng(seed)
    draws = {"score_scale": np.exp(rng.normal(size=(CHAINS, DRAWS))), "value_scale": np.exp(rng.normal(size=(CHAINS, DRAWS)))}
    statistics = {"lp": rng.normal(size=(CHAINS, DRAWS)), "energy": rng.normal(size=(CHAINS, DRAWS))}
    return draws, statistics | {"diverging": np.zeros((CHAINS, DRAWS))}


def sticky(rho, seed=0):
    """Autoregressive chains with the right distribution."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(CHAINS, DRAWS))
    for d in range(1, DRAWS):
        x[:, d] = rho * x[:, d - 1] + np.sqrt(1 - rho**2) * x[:, d]
    return x


def codes(draws, statistics):
    return [found["code"] for found in verdict.convergence(draws, statistics)]


@pytest.mark.parametrize(("informed", "flagged"), [(0.05, False), (3.0, True)])
def test_dependence_on_the_prior(informed, flagged):
    """x ~ N(1, 1) a priori, seen once as 0 with this error: the posterior depends on the prior if the error is large."""
    precision = 1 + informed**-2
    x = np.random.default_rng(0).normal(1 / precision, precision**-0.5, (CHAINS, DRAWS))
    parts = {"posterior": x, "log_prior": -((x - 1) ** 2) / 2}
    tree = xr.DataTree.from_dict({name: xr.Dataset({"x": (("chain", "draw"), part)}) for name, part in parts.items()})
    found = identifiability.sensitivity(tree, ["x"])
    assert [each["code"] for each in found] == ["prior_sensitive"] * flagged
    few = tree.isel(draw=slice(20))
    assert identifiability.sensitivity(few, ["x"]) == identifiability.sensitivity(tree, []) == []


@pytest.mark.parametrize("seed", range(5))
def test_good_draws_pass(seed):
    assert codes(*good(seed)) == []


def test_chains_at_different_places_are_seen():
    draws, statistics = good()
    draws["score_scale"] = draws["score_scale"] * np.exp([[0.0], [0.0], [0.0], [0.5]])
    found, *_ = verdict.convergence(draws, statistics)
    assert found["code"] == "rhat"
    assert "score_scale" in found["message"]
    assert found["numbers"]["rhat"] > 1.01


def test_every_reason_says_what_to_do():
    """Whatever is wrong, by both methods that sample chains; one chain needs no method's advice."""
    draws, statistics = good()
    wrong = {
        "rhat": ({"score_scale": draws["score_scale"] * np.exp([[0.0], [0.0], [0.0], [0.5]])}, statistics),
        "ess": (draws, statistics | {"lp": sticky(0.99)}),
        "divergences": (draws, statistics | {"diverging": np.ones((CHAINS, DRAWS))}),
        "ebfmi": (draws, statistics | {"energy": sticky(0.9)}),
        "stuck": ({"score_scale": np.ones((CHAINS, DRAWS))}, statistics),
    }
    for method in (Networkwise(), Nuts()):
        for heads in (1, 2):
            posed = problem(np.eye(3), Architecture(heads=heads))
            advise = partial(method.advice, posed)
            for code, sampled in wrong.items():
                found = verdict.convergence(*sampled, advise)
                assert advise(code) in found[0 if code != "ess" else -1]["message"]
                assert all("; " in each["message"] for each in found)
    assert "observe fewer tokens" in Networkwise().advice(problem(np.eye(3), Architecture(heads=1)), "rhat")
    assert "one head" not in Networkwise().advice(problem(np.eye(3), Architecture(heads=2)), "rhat")


def test_chains_that_spread_differently_are_seen():
    draws, statistics = good()
    draws["value_scale"] = draws["value_scale"] ** np.array([[1.0], [1.0], [1.0], [3.0]])
    assert "rhat" in codes(draws, statistics)


def test_slow_chains_are_seen():
    """A correlation of 0.9 between neighbours leaves 50 of 1,000 draws."""
    draws, statistics = good()
    draws["score_scale"] = np.exp(sticky(0.9))
    found = verdict.convergence(draws, statistics)
    assert {reason["code"] for reason in found} >= {"ess"}
    assert any(reason["numbers"].get("ess_bulk", np.inf) < 400 for reason in found)


def test_the_log_density_counts_like_a_parameter():
    draws, statistics = good()
    statistics["lp"] = sticky(0.9)
    assert "ess" in codes(draws, statistics)


@pytest.mark.parametrize(("share", "fires"), [(0.0005, False), (0.002, True)])
def test_divergences(share, fires):
    draws, statistics = good()
    statistics["diverging"] = np.arange(CHAINS * DRAWS).reshape(CHAINS, DRAWS) < share * CHAINS * DRAWS
    assert codes(draws, statistics) == (["divergences"] if fires else [])


def test_energies_that_hardly_move():
    """E-BFMI of an autoregression is 2 (1 - rho)."""
    draws, statistics = good()
    statistics["energy"] = sticky(0.9)
    (found,) = verdict.convergence(draws, statistics)
    assert found["code"] == "ebfmi"
    np.testing.assert_allclose(found["numbers"]["ebfmi"], 0.2, atol=0.05)
    statistics["energy"] = np.zeros((CHAINS, DRAWS))
    assert codes(draws, statistics) == ["ebfmi"]


@pytest.mark.parametrize("name", ["score_scale", "value_scale"])
def test_a_chain_that_never_moves_is_no_convergence(name):
    """Whichever parameter it is; R-hat is then undefined, and NaN must not hide behind another parameter's."""
    draws, statistics = good()
    draws[name] = np.full((CHAINS, DRAWS), 0.7)
    found = verdict.convergence(draws, statistics)
    assert [reason["code"] for reason in found] == ["rhat", "ess", "ess"]
    assert name in found[0]["message"]
    json.dumps(found, allow_nan=False)
    json.dumps(table(draws, {}), allow_nan=False)


def test_one_chain_is_no_convergence():
    draws, statistics = good()
    one = [{name: x[:1] for name, x in group.items()} for group in (draws, statistics)]
    (found,) = verdict.convergence(*one)
    assert "one chain only; run at least two" in found["message"]
    json.dumps(found, allow_nan=False)


def test_log_densities_that_are_not_numbers_are_no_convergence():
    draws, statistics = good()
    statistics["lp"][2, 5] = np.nan
    assert "rhat" in codes(draws, statistics)


def test_entries_that_are_constant_by_definition_do_not_count():
    """The diagonal of a correlation matrix, which rounding moves in the last digit; its other entries do."""
    draws, statistics = good()
    rng = np.random.default_rng(1)
    K = np.broadcast_to(np.eye(2), (CHAINS, DRAWS, 2, 2)).copy()
    K[..., 1, 1] += np.where(rng.random((CHAINS, DRAWS)) < [[0.1], [0.1], [0.1], [0.9]], 2.2e-16, 0)
    K[..., 0, 1] = K[..., 1, 0] = np.tanh(rng.normal(size=(CHAINS, DRAWS)))
    draws["K"] = K
    assert codes(draws, statistics) == []
    assert [name for name in verdict.summary(draws) if name[0] == "K"] == ["K[0,1]"]
    K[3, :, 0, 1] += 1
    assert "rhat" in codes(draws, statistics)


def test_summary():
    draws, _ = good()
    row = verdict.summary(draws)["score_scale"]
    x = draws["score_scale"]
    np.testing.assert_allclose([row["mean"], row["sd"]], [x.mean(), x.std(ddof=1)])
    np.testing.assert_allclose([row["eti90_lb"], row["eti90_ub"]], np.quantile(x, [0.05, 0.95]))
    assert abs(row["rhat"] - 1) < 0.01
    assert row["ess_bulk"] > 0.8 * CHAINS * DRAWS


def test_conditional_covariances_whose_chains_disagree_are_a_remark():
    """Of 120 entries, those of one network; many networks are looked at in part."""
    Sigma = 1 + 0.1 * np.random.default_rng(0).normal(size=(CHAINS, 200, 20, 3, 3))
    assert verdict.of_Sigma(Sigma) == []
    Sigma[0, :, 7] += 1
    (found,) = verdict.of_Sigma(Sigma)
    assert found["code"] == "sigma_rhat"
    np.testing.assert_allclose(found["numbers"]["share"], 1 / 20)
    many = np.tile(Sigma, (1, 1, 30, 1, 1))
    np.testing.assert_allclose(verdict.of_Sigma(many)[0]["numbers"]["share"], 1 / 20, atol=0.03)
    assert verdict.of_Sigma(None) == verdict.of_Sigma(Sigma[:, :5]) == []


def test_prior_dominated_parameters_are_told_from_informed_ones():
    rng = np.random.default_rng(0)
    prior = {name: np.exp(rng.normal(size=(1, 1000))) for name in ("score_scale", "value_scale")}
    draws = {"score_scale": np.exp(0.9 * rng.normal(size=(4, 500))), "value_scale": np.exp(0.1 * rng.normal(size=(4, 500)))}
    identified, (found,) = identifiability.identification(draws, prior, {})
    assert identified == {"score_scale": False, "value_scale": True}
    assert found["code"] == "prior_dominated"
    np.testing.assert_allclose(found["numbers"]["ratio"], 0.9, atol=0.1)
    identified, reasons = identifiability.identification(draws, prior, {"value_scale": "of a reason"})
    assert identified == {"score_scale": False, "value_scale": False}
    assert [reason["code"] for reason in reasons] == ["prior_dominated", "unidentified"]
    assert "of a reason" in reasons[1]["message"]


def test_identification_of_matrices_is_told_entry_by_entry():
    """Also of those that may be negative; parameters without a prior are not judged."""
    rng = np.random.default_rng(0)
    K = np.broadcast_to(np.eye(3), (4, 500, 3, 3)).copy()
    K[..., 0, 1], K[..., 0, 2] = rng.uniform(-1, 1, size=(4, 500)), rng.uniform(-0.1, 0.1, size=(4, 500))
    before = np.broadcast_to(np.eye(3), (1, 500, 3, 3)).copy()
    before[..., 0, 1], before[..., 0, 2] = rng.uniform(-1, 1, size=(2, 1, 500))
    identified, (found,) = identifiability.identification({"K": K, "nu": K[..., 0, 0]}, {"K": before}, {})
    assert identified == {"K[0,1]": False, "K[0,2]": True}
    assert "K[0,1]" in found["message"]


def problem(kernel, layer, **known):
    s = len(known.get("tokens", kernel))
    y = np.random.default_rng(0).normal(size=(12, s, 4))
    return pose(Observations(y, kernel=kernel, **known), layer, lookup("limit_law"), None)


K = np.array([[1.0, 0.3, 0.3], [0.3, 1.0, 1.0], [0.3, 1.0, 1.0]])  # tokens 1 and 2 are equal
NEVER = {
    "one token": (np.eye(1), Architecture(), {}),
    "equal tokens": (np.full((3, 3), 0.7), Architecture(heads=2), {}),
    "causal first token": (np.eye(3), Architecture(mask="causal"), {"tokens": [0]}),
    "keys that are equal": (K, Architecture(mask=np.array([[1, 0, 0], [0, 1, 1], [0, 1, 1]], bool)), {}),
    "a query that is zero": (np.diag([0.0, 1.0, 2.0]), Architecture(), {"tokens": [0]}),
    "equal tokens in every network": (np.full((12, 3, 3), 0.7), Architecture(heads=2), {}),
}
INFORMED = {
    "any": (np.eye(3), Architecture(), {}),
    "causal": (np.eye(3), Architecture(mask="causal"), {}),
    "causal second token": (np.eye(3), Architecture(mask="causal"), {"tokens": [1]}),
    "one key each but for one": (np.eye(3), Architecture(mask=np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1]], bool)), {}),
    "two equal tokens": (K, Architecture(), {}),
}


@pytest.mark.parametrize("design", NEVER)
def test_designs_that_never_inform_score_scale(design):
    kernel, layer, known = NEVER[design]
    s = {} if kernel.ndim == 2 else {"tokens": [0, 1, 2]}
    assert list(never_identified(problem(kernel, layer, **known, **s))) == ["score_scale"]


@pytest.mark.parametrize("design", INFORMED)
def test_designs_that_may_inform_score_scale(design):
    kernel, layer, known = INFORMED[design]
    assert never_identified(problem(kernel, layer, **known)) == {}


def test_identity_scores_inform_only_the_product_of_both_scales():
    layer = Architecture(score_function="identity")
    assert sorted(never_identified(problem(np.eye(3), layer))) == ["score_scale", "value_scale"]
    assert never_identified(problem(np.eye(3), layer.replace(bias=np.eye(3)))) == {}
    assert never_identified(problem(np.eye(1), layer.replace(bias=np.ones((1, 1))))) == {}  # one key, of any weight


@pytest.mark.parametrize(("networks", "code"), [(1, ["one_network"]), (3, ["few_networks"]), (12, [])])
def test_few_networks_are_remarked_upon(networks, code):
    few = pose(problem(np.eye(3), Architecture()).observations.first(networks), Architecture(), lookup("limit_law"), None)
    assert [reason["code"] for reason in of_design(few)] == code
