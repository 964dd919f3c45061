"""The DataTree of a fit: its groups and axes, what is kept of parameters and layer, likelihoods; what ArviZ makes of it."""

import json
import warnings
from dataclasses import fields

import arviz
import numpy as np
import numpyro.distributions as dist
import pytest

from hierattn import Architecture, Observations
from hierattn.inference import tree
from hierattn.inference.calling import MODELS, arguments, lookup, sites
from hierattn.inference.fitting import fit
from hierattn.inference.methods.nuts import Nuts
from hierattn.inference.methods.protocol import Run
from hierattn.inference.predictions import from_prior
from hierattn.inference.problem import Posterior, pose
from hierattn.layer.record import layer_from
from tests.inference import tiny
from tests.inference.trees import CONDITIONAL, GROUPS, check, codes
from tests.variants import variants

Y = tiny.outputs()


class FromPrior(Nuts):
    """NUTS replaced by draws from the prior: what is made of draws is tested for every model, NUTS itself for some."""

    def sample(self, problem, run):
        parameters, _ = sites(problem, arguments(problem, run.width, observed=True))
        prior = from_prior(problem, run.width, run.seed)
        draws = {name: prior[name][0, :20].reshape(run.chains, -1, *prior[name].shape[2:]) for name in parameters}
        return Posterior(draws, {"lp": np.random.default_rng(0).normal(size=(run.chains, 20 // run.chains))}, "nuts")


def test_all_groups_with_named_axes(result):
    check(result, GROUPS | CONDITIONAL | {"log_likelihood"})
    dims = {f"{group}/{name}": x.dims for group in result.children for name, x in result[group].data_vars.items()}
    sample, y = ("chain", "draw"), ("network", "token", "coordinate")
    assert dims["posterior/score_scale"] == dims["posterior/value_scale"] == dims["sample_stats/lp"] == sample
    assert dims["posterior/kappa"] == (*sample, "token", "token_")
    assert dims["posterior/kappa_prime_factor"] == (*sample, "token", "rank")
    assert dims["posterior_predictive/y"] == dims["prior_predictive/y"] == dims["conditional_predictive/y"] == (*sample, *y)
    assert dims["conditional_posterior/Sigma"] == (*sample, "network", "token", "token_")
    assert dims["log_likelihood/y"] == (*sample, "network")
    assert dims["observed_data/y"] == y
    assert dims["constant_data/S"] == ("network", "token", "token_")
    assert result["posterior"].sizes["draw"] == 100
    assert result["posterior_predictive"].sizes["network"] == tiny.NETWORKS


def test_what_is_kept_of_the_parameters(result):
    q, o = (np.asarray(result["posterior"][name]) for name in ("score_scale", "value_scale"))
    F, kappa = np.asarray(result["posterior"]["kappa_prime_factor"]), np.asarray(result["posterior"]["kappa"])
    np.testing.assert_allclose(kappa, o[..., None, None] ** 2 * tiny.K)
    np.testing.assert_allclose(F @ F.swapaxes(-1, -2), q[..., None, None] * tiny.K)
    prior = dist.LogNormal(0.0, 1.0).log_prob(q)
    np.testing.assert_allclose(result["log_prior"]["score_scale"], prior, rtol=1e-5)
    assert json.loads(result.attrs["parameters"])["score_scale"]["mean"] == pytest.approx(q.mean())
    assert result.attrs["seed"] == 1
    assert result.attrs["method"] == "networkwise"
    assert {"why", "version_jax", "version_hierattn", "outputs_sha256", "command", "dtype"} <= set(result.attrs)


def test_it_is_what_arviz_expects(result, tmp_path):
    file = tmp_path / "fit.nc"
    result.to_netcdf(file, engine="h5netcdf")
    with arviz.from_netcdf(file) as loaded:
        assert set(loaded.children) == set(result.children)
        for name, group in result.children.items():
            assert loaded[name].to_dataset().equals(group.to_dataset()), name
        assert loaded.attrs["verdict"] == result.attrs["verdict"]
        assert list(arviz.summary(loaded, var_names=["score_scale"]).index) == ["score_scale"]
        with warnings.catch_warnings(action="ignore"):  # so short a run has large Pareto k
            assert np.isfinite(arviz.loo(loaded).elpd)


MODELS_OF_FITS = [*sorted({*MODELS} - {"kernel_unknown", "student_t"}), "no kernel"]


@pytest.mark.parametrize("model", variants(MODELS_OF_FITS, ["limit_law", "infinite_heads", "finite_head_dim", "no kernel"]))
def test_every_model_has_all_groups(model):
    """kernel_unknown where no kernel is given; of student_t a whole fit is in test_checkpoints."""
    no_kernel = model == "no kernel"
    layer = tiny.LAYER.replace(head_dim=4) if model == "finite_head_dim" else tiny.LAYER
    observations = tiny.observations(**{"kernel": None} if no_kernel else {})
    options = {"method": FromPrior(), "log_likelihood": False, "chains": 2, "width": 64}
    result = check(fit(observations, "limit_law" if no_kernel else model, layer, **options), GROUPS)
    assert result.attrs["model"] == ("kernel_unknown" if no_kernel else model)
    assert ("kernel_inferred" in codes(result)) == no_kernel
    assert result["posterior_predictive"]["y"].shape == (2, 10, 4, 3, 8)
    matrices = {"no kernel": "K", "separate_kernels": "K_values"}
    if model in matrices:
        K, o = np.asarray(result["posterior"][matrices[model]]), np.asarray(result["posterior"]["value_scale"])
        np.testing.assert_allclose(result["posterior"]["kappa"], o[..., None, None] ** 2 * K)
        assert result["posterior"][matrices[model]].dims == ("chain", "draw", "token", "token_")
        L = np.asarray(result["posterior"]["L_scores" if model == "separate_kernels" else "L"])
        q = np.asarray(result["posterior"]["score_scale"])[..., None, None]
        F = np.asarray(result["posterior"]["kappa_prime_factor"])
        np.testing.assert_allclose(F @ F.swapaxes(-1, -2), q * L @ L.swapaxes(-1, -2), atol=1e-6)
    assert "kappa" in result["posterior"]


def test_likelihoods_are_densities_of_the_outputs_in_their_own_units(result):
    """Outputs 2^20 times as large, value_scale too: each of n t outputs is 2^20 times less dense, by the same particles."""
    draws = {name: np.asarray(result["posterior"][name])[:, :5] for name in ("score_scale", "value_scale")}
    found = []
    for scale in (1.0, 2.0**20):
        problem = pose(Observations(scale * Y, kernel=tiny.K, heads=2), tiny.LAYER, lookup("limit_law"), None)
        scaled = draws | {"value_scale": scale * draws["value_scale"]}
        found_here = Posterior(scaled, {"lp": np.zeros((2, 5))}, "networkwise")
        value, _, lacking = tree.likelihoods(tree.Fitted(problem, tiny.NETWORKWISE, "", found_here), Run(0, 2))
        assert value.shape == (2, 5, 4)
        assert lacking == []
        found.append(value)
    np.testing.assert_allclose(found[0] - found[1], 8 * 3 * np.log(2.0**20), rtol=1e-6)


LAYERS = {
    "all else": Architecture(heads=2, head_dim=4, key_value_heads=1, scaling="linear", bias=np.eye(3), rotary=[1.0, 0.5]),
    "identity, causal": Architecture(heads=2, score_function="identity", mask="causal", sigma_q=1.6, sigma_o=0.5),
    "a mask, a bias each": Architecture(heads=2, mask=np.tri(3, dtype=bool), bias=np.arange(18.0).reshape(2, 3, 3)),
    "unequal scales": Architecture(heads=2, sigma_q=[1.0, 2.0]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_all_fields_of_the_layer_are_kept(name, tmp_path):
    """In the file too. Only products of scales matter."""
    layer = LAYERS[name]
    problem = pose(tiny.observations(), layer, lookup("limit_law"), None)
    tree.constants(problem).to_netcdf(tmp_path / "constants.nc", engine="h5netcdf")
    with arviz.from_netcdf(tmp_path / "constants.nc") as stored:
        kept = layer_from(stored.to_dataset(), "a fit")
    np.testing.assert_array_equal(kept.score_scale, layer.score_scale)
    np.testing.assert_array_equal(kept.value_scale, layer.value_scale)
    np.testing.assert_array_equal(kept.allowed(3, 3), layer.allowed(3, 3))
    for field in fields(layer):
        if not field.name.startswith("sigma") and field.name != "mask":
            np.testing.assert_array_equal(getattr(kept, field.name), getattr(layer, field.name), err_msg=field.name)
