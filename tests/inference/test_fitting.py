"""From observations to a DataTree: every model, every route, designs at the edge; what is said, and that nothing is NaN."""

import json
import subprocess
import sys
import warnings

import arviz
import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from hierattn import InputError, Law, Observations, kernels
from hierattn.inference import fitting, tree
from hierattn.inference.fitting import MODELS, fit, lookup, route
from hierattn.inference.methods import networkwise, nuts
from hierattn.inference.problem import Posterior, pose
from tests.inference import tiny
from tests.statistics import SIGMAS, same_joint_law

GROUPS = {"posterior", "sample_stats", "posterior_predictive", "prior", "prior_predictive", "log_prior"}
GROUPS |= {"observed_data", "constant_data"}
CONDITIONAL = {"conditional_posterior", "conditional_predictive"}
Y = tiny.outputs()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for (module, name), value in tiny.CONSTANTS.items():
        monkeypatch.setattr(module, name, value)
    before = jax.config.jax_enable_x64
    yield
    assert jax.config.jax_enable_x64 == before


@pytest.fixture
def no_sampling(monkeypatch):
    """NUTS replaced by draws from the prior: what is made of draws is tested for every model, NUTS itself for some."""

    def sample(problem, seed, chains, enough, width, checkpoint, advance):
        kwargs = nuts.arguments(problem, width, observed=True)
        parameters, _ = nuts.sites(problem, kwargs)
        prior = tree.from_prior(problem, width, seed)
        draws = {name: prior[name][0, :20].reshape(chains, -1, *prior[name].shape[2:]) for name in parameters}
        return draws, {"lp": np.random.default_rng(0).normal(size=(chains, 20 // chains))}

    monkeypatch.setattr(nuts, "sample", sample)


@pytest.fixture
def no_predictions(monkeypatch):
    """Predictions, which take a while to compile, replaced by zeros."""

    def new_networks(problem, parameters, width, seed):
        return [np.zeros((1, 1, problem.observations.networks, problem.observations.s, 1)) for _ in parameters]

    monkeypatch.setattr(tree, "new_networks", new_networks)


def codes(result):
    return [found["code"] for found in json.loads(result.attrs["reasons"])]


def check(result, groups):
    """All groups, no NaN, JSON without NaN, and a verdict that agrees with its reasons."""
    assert set(result.children) == groups
    for name, group in result.children.items():
        for variable in group.data_vars:
            assert np.all(np.isfinite(np.asarray(group[variable], float))), f"{name}: {variable}"
    for name in ("reasons", "parameters", "identified"):
        json.loads(result.attrs[name], parse_constant=pytest.fail)
    failed = {"rhat", "ess", "divergences", "ebfmi"} & set(codes(result))
    assert result.attrs["verdict"] == ("NOT CONVERGED" if failed else "CONVERGED")
    return result


@pytest.fixture(scope="module")
def result():
    """The default route on four networks: tokens of the first look at themselves alone, those of others nearly alike."""
    A = np.stack([np.eye(3), *3 * [0.2 * np.eye(3) + 0.8 / 3]])
    y = A @ np.linalg.cholesky(tiny.K) @ np.random.default_rng(0).normal(size=(4, 3, 8))
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in tiny.CONSTANTS.items():
            patch.setattr(module, name, value)
        return fit(Observations(y, kernel=tiny.K, heads=2), chains=2, seed=1)


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


def test_new_networks_have_fresh_scores_and_observed_ones_their_own(result):
    """Tokens of the first network are less alike than of others: so they are in its own predictions, in no new network's."""
    ratios = {}
    for group in ("observed_data", "posterior_predictive", "conditional_predictive"):
        apart = np.moveaxis(np.diff(result[group]["y"], axis=-2) ** 2, -3, 0).reshape(4, -1).mean(axis=1)
        ratios[group] = apart[0] / apart[1:].mean()
    print(ratios)
    assert ratios["observed_data"] > 5
    assert ratios["conditional_predictive"] > 2
    assert abs(ratios["posterior_predictive"] - 1) < 0.5  # some five standard errors of 200 draws


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


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.parametrize("model", [*sorted({*MODELS} - {"kernel_unknown", "student_t"}), "no kernel"])
def test_every_model_has_all_groups(model):
    """kernel_unknown where no kernel is given; of student_t a whole fit is in test_checkpoints."""
    no_kernel = model == "no kernel"
    layer = tiny.LAYER.replace(head_dim=4) if model == "finite_head_dim" else tiny.LAYER
    observations = tiny.observations(**{"kernel": None} if no_kernel else {})
    options = {"method": "auto" if no_kernel else "nuts", "log_likelihood": False, "chains": 2, "width": 64}
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


def test_predictions_follow_the_law():
    """1,500 networks with parameters fixed, against the law's own sampler; a score_scale of 2 instead of 1 is seen."""
    problem = pose(tiny.observations(networks=3), tiny.LAYER, lookup("limit_law"), None)
    parameters = {"score_scale": np.ones((1, 500)), "value_scale": np.full((1, 500), 1.3)}
    others = {"score_scale": np.full((2, 20), 1e-6), "value_scale": np.full((2, 20), 1.3)}
    unlike, y = tree.new_networks(problem, [others, parameters], None, 0)
    assert unlike.shape == (2, 20, 3, 3, 8)
    rng, y = np.random.default_rng(0), y.reshape(1500, 3, 8)
    right, wrong = (Law(tiny.LAYER.with_scales(q, 1.3), tiny.K).sample(jax.random.key(0), 20_000, 8) for q in (1.0, 2.0))
    assert same_joint_law(y, right, rng)
    assert not same_joint_law(y, wrong, rng)
    corner = np.corrcoef(np.moveaxis(unlike, -1, 0).reshape(-1, 3).T)
    assert np.all(corner > 0.999)  # without scores all tokens have the same output


def test_likelihoods_are_densities_of_the_outputs_in_their_own_units(result):
    """Outputs 2^20 times as large, value_scale too: each of n t outputs is 2^20 times less dense, by the same particles."""
    draws = {name: np.asarray(result["posterior"][name])[:, :5] for name in ("score_scale", "value_scale")}
    found = []
    for scale in (1.0, 2.0**20):
        problem = pose(Observations(scale * Y, kernel=tiny.K, heads=2), tiny.LAYER, lookup("limit_law"), None)
        scaled = draws | {"value_scale": scale * draws["value_scale"]}
        value, _, lacking = tree.likelihoods(problem, Posterior(scaled, {"lp": np.zeros((2, 5))}, "networkwise"), None, 0)
        assert value.shape == (2, 5, 4)
        assert lacking == []
        found.append(value)
    np.testing.assert_allclose(found[0] - found[1], 8 * 3 * np.log(2.0**20), rtol=1e-6)


def agree(x, y):
    """Means and standard deviations of draws (chain, draw) of two samplers, by their effective numbers."""
    sizes = [float(arviz.ess(np.asarray(z))) for z in (x, y)]
    error = np.hypot(*(z.std() / np.sqrt(size) for z, size in zip((x, y), sizes, strict=True)))
    return abs(x.mean() - y.mean()) <= SIGMAS * error and abs(x.std() - y.std()) <= SIGMAS * error / np.sqrt(2)


def test_both_samplers_find_the_same_posterior(monkeypatch):
    """A shift of one standard deviation is seen. The networkwise one has finer tests (test_networkwise)."""
    for module, name, value in [(networkwise, "WARM_UP", 8), (fitting, "MOST_SWEEPS", 1000), (nuts, "CHUNK", 100)]:
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(nuts, "WARM_UP", 2)
    monkeypatch.setattr(fitting, "MOST_DRAWS", 600)
    problem = pose(tiny.observations(), tiny.LAYER, lookup("limit_law"), None)
    ours, theirs = (route(problem, method, seed=0, chains=2) for method in ("networkwise", "nuts"))
    for name in ("score_scale", "value_scale"):
        x, y = np.log(ours.draws[name]), np.log(theirs.draws[name])
        assert agree(x, y)
        assert not agree(x + x.std(), y)
    assert set(theirs.statistics) == {"diverging", "energy", "n_steps", "acceptance_rate", "lp"}


OWN_MODEL = """
import numpyro
import numpyro.distributions as dist
from hierattn.law.plates import observe, plates

def model(outputs=None, networks=1, coordinates=1, tokens=1):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 2.0))
    network, coordinate, y = plates(outputs, tokens, networks, coordinates)
    with network:
        observe(dist.Laplace(0.0, 1 / rate).expand([tokens]).to_event(1), coordinate, y)
"""


def test_a_model_of_ones_own(tmp_path):
    """Called like one of ours, which it must not be taken for. The posterior is a Gamma, known exactly."""
    file = tmp_path / "limit_law.py"
    file.write_text(OWN_MODEL)
    result = check(fit(tiny.observations(), str(file), chains=2), GROUPS | {"log_likelihood"})
    assert result.attrs["model"] == "limit_law.py"
    assert result.attrs["method"] == "nuts"
    rate = np.asarray(result["posterior"]["rate"])
    exact = (2 + Y.size) / (2 + np.abs(Y).sum())
    assert abs(rate.mean() / exact - 1) < 0.1
    likelihood = np.log(rate / 2)[..., None] * Y[0].size - rate[..., None] * np.abs(Y).sum(axis=(1, 2))
    np.testing.assert_allclose(result["log_likelihood"]["y"], likelihood, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "expected a function `model`, got x"),
        ("def model(", "expected a file that Python can run, got SyntaxError"),
        ("def model(outputs=None): pass", "expected a function with the arguments outputs, networks, coordinates"),
        ("def model(secret, outputs=None, networks=1, coordinates=1): pass", "got secret; give the others defaults"),
        ("def model(outputs=None, networks=1, coordinates=1): pass", "expected a site `y` under the plates"),
    ],
)
def test_files_that_are_no_models_are_refused(tmp_path, text, words):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(InputError) as raised:
        fit(tiny.observations(), str(tmp_path / "mine.py"))
    assert words in str(raised.value)


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
    result = fit(observations, chains=2, log_likelihood=False)
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
    ({}, {"method": "marginal", "model": "student_t"}, "method: expected one observed token, or the model limit_law"),
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


def test_numpyro_is_whole_after_arviz():
    """ArviZ leaves a lazy NumPyro behind, of which importing a part first would make a second copy of that part."""
    code = "import sys, arviz, hierattn.inference, numpyro\n"
    code += "assert numpyro.distributions.distribution and numpyro.handlers is sys.modules['numpyro.handlers']"
    subprocess.run([sys.executable, "-c", code], check=True)
