"""Every model samples from its prior, conditions on data, can be inspected, and has the law it says."""

import inspect
from functools import partial
from importlib import import_module

import arviz
import jax
import numpy as np
import numpyro
import pytest
from numpyro.distributions import biject_to
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.util import log_density, potential_energy
from scipy import stats

from hierattn import Architecture, InputError, Law, kernels
from hierattn.models import DIMS
from hierattn.numerics import rqmc
from tests.statistics import same_joint_law
from tests.variants import variants

K = kernels.equicorrelated(3, 0.3)
LAYER = Architecture(heads=2)
ARGUMENTS = {
    "limit_law": (LAYER, K),
    "finite_head_dim": (LAYER.replace(head_dim=4), K),
    "infinite_heads": (LAYER, K),
    "linear_scaling": (LAYER, K, 64),
    "kernel_unknown": (LAYER, 3),
    "separate_kernels": (LAYER, 3),
    "student_t": (3,),
}
FIXED = {"score_scale": 1.6, "value_scale": 1.3}


def load(name):
    return import_module(f"hierattn.models.{name}")


def shaped(name, *arguments, **options):
    """Sites of a model with shapes in place of numbers: nothing is computed."""
    sites = {}
    jax.eval_shape(lambda: sites.update(trace(seed(load(name).model, 0)).get_trace(*arguments, **options)))
    return sites


def drawn(model, *arguments, **options):
    """Outputs that a model draws, compiled as one program."""
    return np.asarray(jax.jit(lambda: trace(seed(model, 0)).get_trace(*arguments, **options)["y"]["value"])())


def density(outputs, K, E):
    """The limit law's log density of outputs at fixed scales and scores, compiled as one program."""
    model = load("limit_law").model
    return jax.jit(lambda E: log_density(model, (LAYER, K), {"outputs": outputs}, FIXED | {"p_base": E})[0])(E)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_prior_draws(name):
    module = load(name)
    draws = Predictive(module.model, num_samples=4)(jax.random.key(0), *ARGUMENTS[name], networks=5, coordinates=6)
    assert draws["y"].shape == (4, 6, 5, 3)
    assert all(np.all(np.isfinite(x)) for x in draws.values())
    parameters = {site for site in module.priors() if site != "concentration"}
    assert parameters <= set(draws)
    assert inspect.signature(module.priors).parameters["scale"].default == 1.0


@pytest.mark.parametrize("name", variants(ARGUMENTS, ["limit_law"]))
def test_conditioning_and_inspection(name):
    """Observed sites, plates, shapes; the density has a finite gradient in every latent variable, where samplers need it."""
    outputs = Law(LAYER, K).sample(jax.random.key(1), 6, 5)
    model, arguments = load(name).model, ARGUMENTS[name]
    sites = shaped(name, *arguments, outputs=outputs)
    assert {site for site in sites if sites[site]["type"] == "plate"} == {"network", "coordinate"}
    assert sites["y"]["is_observed"]
    assert sites["y"]["value"].shape == (5, 6, 3)
    assert "y" in numpyro.util.format_shapes(sites)

    @jax.jit
    def gradient():
        """At a draw from the prior, in unconstrained variables."""
        drawn = trace(seed(model, 0)).get_trace(*arguments, outputs=outputs)
        latent = {n: x for n, x in drawn.items() if x["type"] == "sample" and not x["is_observed"]}
        z = {n: biject_to(x["fn"].support).inv(x["value"]) for n, x in latent.items()}
        return jax.grad(partial(potential_energy, model, arguments, {"outputs": outputs}))(z)

    assert all(np.all(np.isfinite(x)) and np.any(x != 0) for x in gradient().values())


def test_sampling_from_the_posterior_into_arviz():
    outputs = Law(LAYER, K).sample(jax.random.key(1), 6, 5)
    mcmc = MCMC(NUTS(load("limit_law").model, max_tree_depth=4), num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(2), LAYER, K, outputs=outputs)
    tree = arviz.from_numpyro(mcmc, dims=DIMS)
    assert tree["observed_data"]["y"].dims == ("coordinate", "network", "token")
    assert tree["posterior"]["p"].dims == ("chain", "draw", "network", "head", "query", "key")
    assert not any("_dim_" in str(axis) for axis in tree["posterior"].dims)
    assert np.all(np.isfinite(tree["posterior"]["score_scale"]))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_axis_has_a_name(name):
    """Also those of latent variables: ArviZ has no name of its own to add."""
    sites = shaped(name, *ARGUMENTS[name], networks=5, coordinates=6)
    kept = {n: x["value"] for n, x in sites.items() if x["type"] in ("sample", "deterministic")}
    values = {n: np.zeros((1, 1, *np.shape(value))) for n, value in kept.items()}
    assert {"y", *load(name).priors()} - {"concentration"} <= set(values)
    found = arviz.convert_to_dataset(values, dims=DIMS)
    assert [str(axis) for axis in found.dims if "_dim_" in str(axis)] == []
    assert found["y"].dims == ("chain", "draw", "coordinate", "network", "token")


@pytest.mark.parametrize("name", ARGUMENTS)
def test_models_say_what_they_are(name):
    """Name, signature and words are the model's own, not those of a handler of NumPyro."""
    model = load(name).model
    assert (model.__name__, model.__module__) == ("model", f"hierattn.models.{name}")
    assert {"outputs", "networks", "coordinates", "prior"} <= set(inspect.signature(model).parameters)
    assert "TransformReparam" not in inspect.getdoc(model)
    assert "numpyro" not in inspect.getdoc(model)


@pytest.mark.parametrize("kernel", [K, np.asarray(K, np.float32)], ids=["float64", "float32"])
@pytest.mark.parametrize("name", ["limit_law", "student_t"])
def test_outputs_of_any_dtype_are_observed_in_the_laws(name, kernel):
    """As stored in a file, float32, while JAX works in float64, and the other way round; nothing need be computed to see."""
    outputs, arguments = np.ones((6, 3, 5)), (3,) if name == "student_t" else (LAYER, kernel)

    def density(model, observed):
        sites = trace(seed(model, 0)).get_trace(*arguments, outputs=observed)
        return sites["y"]["fn"].log_prob(sites["y"]["value"])

    for x64, kind in ((True, np.float32), (False, np.float64), (True, np.float16), (True, np.float64)):
        with jax.enable_x64(x64):
            found = jax.eval_shape(partial(density, load(name).model, outputs.astype(kind)))
            assert found.shape == (5, 6)
            assert found.dtype == (np.float64 if x64 else np.float32)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("limit_law", LAYER),
        ("finite_head_dim", LAYER.replace(head_dim=4)),
        ("linear_scaling", LAYER.replace(sigma_q=1 / 8)),
    ],
)
def test_models_draw_from_the_law(name, layer):
    """20,000 networks of the model with its parameters fixed, against the law's own sampler; a 20 % error is seen."""
    model = substitute(load(name).model, FIXED)
    y = np.moveaxis(drawn(model, *ARGUMENTS[name], networks=20_000, coordinates=2), 0, -1)
    rng = np.random.default_rng(0)
    law = Law(layer.with_scales(1.6 * layer.sigma_q, 1.3), K)
    assert same_joint_law(y, law.sample(jax.random.key(1), 20_000, 2), rng)
    mutant = Law(layer.with_scales(1.6 * layer.sigma_q, 1.2 * 1.3), K)
    assert not same_joint_law(y, mutant.sample(jax.random.key(1), 20_000, 2), rng)


def test_infinite_heads_has_the_laws_second_moments(monkeypatch):
    monkeypatch.setattr(rqmc, "BUDGET", 2**22)  # an error of 1e-4, a hundredth of what is compared
    model = substitute(load("infinite_heads").model, FIXED)
    Sigma = trace(seed(model, 0)).get_trace(LAYER, K)["Sigma"]["value"]
    covariance, error = Law(LAYER.with_scales(1.6, 1.3), K).infinite_heads()
    assert np.max(error) < 1e-3 * covariance.min()
    np.testing.assert_allclose(Sigma, covariance, rtol=1e-2)


def test_log_density_of_the_limit_law_by_hand():
    """Priors, standard normals and Gaussians given p, summed with SciPy's densities."""
    with jax.enable_x64(True):
        law = Law(LAYER.with_scales(1.6, 1.3), K)
        outputs = law.sample(jax.random.key(0), 4, 5)
        E = jax.random.normal(jax.random.key(1), (4, 2, 3, 3))
        found, Sigma = density(outputs, K, E), np.asarray(law.Sigma(law.scores_from(E)))
        expected = stats.lognorm.logpdf([1.6, 1.3], 1).sum() + stats.norm.logpdf(E).sum()
        for S, y in zip(Sigma, np.asarray(outputs), strict=True):
            expected += stats.multivariate_normal.logpdf(y.T, cov=S).sum()
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_priors_follow_the_scale_of_the_data():
    medians = jax.jit(lambda: [[load(name).priors(x)["value_scale"].icdf(0.5) for x in (1.0, 1e-6)] for name in ARGUMENTS])()
    np.testing.assert_allclose(medians, [[1.0, 1e-6]] * len(ARGUMENTS), rtol=1e-5)


@pytest.mark.parametrize("name", ["limit_law", "finite_head_dim", "infinite_heads", "linear_scaling"])
def test_priors_follow_the_size_of_the_kernel(name):
    """Scores and outputs, not their scales, have the same prior for every size of the inputs."""
    priors = load(name).priors
    medians = jax.jit(lambda: [[priors(3.0, kernel=size)[scale].icdf(0.5) for scale in FIXED] for size in (1.0, 100.0)])()
    (q, o), (q_100, o_100) = np.asarray(medians)
    np.testing.assert_allclose([q_100 * 100, o_100 * 10], [q, o], rtol=1e-5)


def test_equal_tokens_can_be_fitted():
    equal = kernels.rbf([0.0, 1.0, 1.0], 1.0)
    outputs = Law(LAYER, equal).sample(jax.random.key(1), 6, 5)
    E = jax.random.normal(jax.random.key(2), (6, 2, 2, 2))
    assert np.isfinite(density(outputs, equal, E))


@pytest.mark.parametrize("name", ["limit_law", "infinite_heads", "linear_scaling"])
def test_equal_tokens_and_unequal_heads_are_legal(name):
    layer = Architecture(heads=2, sigma_q=[0.5, 1.0], bias=np.ones((2, 3, 3)))
    equal = kernels.rbf([0.0, 1.0, 1.0], 1.0)
    arguments = (layer, equal, *ARGUMENTS[name][2:])

    @jax.jit
    def draw():
        y = trace(seed(load(name).model, 0)).get_trace(*arguments, networks=4, coordinates=5)["y"]
        return y["value"], y["fn"].log_prob(y["value"])

    y, log_prob = draw()
    np.testing.assert_allclose(y[..., 1], y[..., 2], atol=1e-5)
    assert np.all(np.isfinite(log_prob))


def test_what_has_no_density_can_still_be_drawn():
    np.testing.assert_array_equal(drawn(load("limit_law").model, Architecture(), np.zeros((3, 3))), 0.0)


OUTPUTS = np.ones((4, 3, 5))


@pytest.mark.parametrize(
    ("name", "arguments", "options", "words"),
    [
        ("finite_head_dim", (LAYER, K), {}, "head_dim: expected a finite head dimension"),
        ("limit_law", (LAYER, K), {"outputs": OUTPUTS[0]}, "outputs: expected shape (networks, 3, coordinates), got (3, 5)"),
        ("limit_law", (LAYER, K), {"outputs": OUTPUTS.swapaxes(1, 2)}, "outputs: expected shape (networks, 3, coordinates)"),
        ("student_t", (3,), {"outputs": OUTPUTS[:, :1]}, "outputs: expected shape (networks, 3, coordinates), got (4, 1, 5)"),
        ("limit_law", (LAYER, K), {"outputs": OUTPUTS * np.nan}, "outputs: expected finite numbers, got 60 NaN"),
        ("limit_law", (LAYER, K), {"networks": 0}, "networks: expected a positive whole number, got 0"),
        (
            "limit_law",
            (LAYER, K),
            {"prior": {"scorescale": 1}},
            "prior: expected only score_scale, value_scale",
        ),
        ("linear_scaling", (LAYER, K, 0), {}, "width: expected a positive number, got 0"),
        ("kernel_unknown", (LAYER, 1), {}, "tokens: expected at least 2 tokens, got 1"),
    ],
)
def test_bad_arguments_are_named(name, arguments, options, words):
    with pytest.raises(InputError) as raised:
        shaped(name, *arguments, **options)
    assert words in str(raised.value)
