"""Every model samples from its prior, conditions on data, can be inspected, and has the law it says."""

import inspect
from functools import partial
from importlib import import_module

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.util import initialize_model, log_density

from hierattn import Architecture, InputError, Law, kernels
from hierattn.models import DIMS
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
    sites = trace(seed(model, 0)).get_trace(*arguments, outputs=outputs)
    assert {site for site in sites if sites[site]["type"] == "plate"} == {"network", "coordinate"}
    assert sites["y"]["is_observed"]
    assert sites["y"]["value"].shape == (5, 6, 3)
    assert "y" in numpyro.util.format_shapes(sites)
    start = initialize_model(jax.random.key(0), model, model_args=arguments, model_kwargs={"outputs": outputs})
    gradient = jax.jit(jax.grad(start.potential_fn))(start.param_info.z)
    assert all(np.all(np.isfinite(x)) and np.any(x != 0) for x in gradient.values())


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
    sites = trace(seed(load(name).model, 0)).get_trace(*ARGUMENTS[name], networks=5, coordinates=6)
    values = {n: np.asarray(x["value"])[None, None] for n, x in sites.items() if x["type"] in ("sample", "deterministic")}
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
    draws = trace(seed(model, 0)).get_trace(*ARGUMENTS[name], networks=20_000, coordinates=2)
    y = np.moveaxis(np.asarray(draws["y"]["value"]), 0, -1)
    rng = np.random.default_rng(0)
    law = Law(layer.with_scales(1.6 * layer.sigma_q, 1.3), K)
    assert same_joint_law(y, law.sample(jax.random.key(1), 20_000, 2), rng)
    mutant = Law(layer.with_scales(1.6 * layer.sigma_q, 1.2 * 1.3), K)
    assert not same_joint_law(y, mutant.sample(jax.random.key(1), 20_000, 2), rng)


def test_infinite_heads_has_the_laws_second_moments():
    model = substitute(load("infinite_heads").model, FIXED)
    Sigma = trace(seed(model, 0)).get_trace(LAYER, K)["Sigma"]["value"]
    covariance, _ = Law(LAYER.with_scales(1.6, 1.3), K).infinite_heads()
    np.testing.assert_allclose(Sigma, covariance, rtol=1e-2)


def test_log_density_of_the_limit_law_by_hand():
    """Priors, standard normals and Gaussians given p, summed with SciPy-free formulas of NumPyro's basic distributions."""
    with jax.enable_x64(True):
        law = Law(LAYER.with_scales(1.6, 1.3), K)
        outputs = law.sample(jax.random.key(0), 4, 5)
        E = jax.random.normal(jax.random.key(1), (4, 2, 3, 3))
        found, _ = log_density(load("limit_law").model, (LAYER, K), {"outputs": outputs}, FIXED | {"p_base": E})
        Sigma = law.Sigma(law.scores_from(E))
        expected = dist.LogNormal(0, 1).log_prob(jnp.array([1.6, 1.3])).sum() + dist.Normal(0, 1).log_prob(E).sum()
        for m in range(4):
            S = outputs[m] @ outputs[m].T
            _, logdet = np.linalg.slogdet(2 * np.pi * np.asarray(Sigma[m]))
            expected += -5 / 2 * logdet - np.trace(np.linalg.solve(Sigma[m], S)) / 2
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_priors_follow_the_scale_of_the_data():
    for name in ARGUMENTS:
        medians = [float(load(name).priors(scale)["value_scale"].icdf(0.5)) for scale in (1.0, 1e-6)]
        np.testing.assert_allclose(medians, [1.0, 1e-6], rtol=1e-5)


@pytest.mark.parametrize("name", ["limit_law", "finite_head_dim", "infinite_heads", "linear_scaling"])
def test_priors_follow_the_size_of_the_kernel(name):
    """Scores and outputs, not their scales, have the same prior for every size of the inputs."""
    (q, o), (q_100, o_100) = (
        [float(load(name).priors(3.0, kernel=size)[scale].icdf(0.5)) for scale in FIXED] for size in (1.0, 100.0)
    )
    np.testing.assert_allclose([q_100 * 100, o_100 * 10], [q, o], rtol=1e-5)


def test_equal_tokens_can_be_fitted():
    equal = kernels.rbf([0.0, 1.0, 1.0], 1.0)
    outputs = Law(LAYER, equal).sample(jax.random.key(1), 6, 5)
    E = jax.random.normal(jax.random.key(2), (6, 2, 2, 2))
    density, _ = log_density(load("limit_law").model, (LAYER, equal), {"outputs": outputs}, FIXED | {"p_base": E})
    assert np.isfinite(density)


@pytest.mark.parametrize("name", ["limit_law", "infinite_heads", "linear_scaling"])
def test_equal_tokens_and_unequal_heads_are_legal(name):
    layer = Architecture(heads=2, sigma_q=[0.5, 1.0], bias=np.ones((2, 3, 3)))
    equal = kernels.rbf([0.0, 1.0, 1.0], 1.0)
    arguments = (layer, equal, *ARGUMENTS[name][2:])
    y = trace(seed(load(name).model, 0)).get_trace(*arguments, networks=4, coordinates=5)["y"]
    np.testing.assert_allclose(y["value"][..., 1], y["value"][..., 2], atol=1e-5)
    assert np.all(np.isfinite(y["fn"].log_prob(y["value"])))


def test_what_has_no_density_can_still_be_drawn():
    sites = trace(seed(load("limit_law").model, 0)).get_trace(Architecture(), np.zeros((3, 3)))
    np.testing.assert_array_equal(sites["y"]["value"], 0.0)


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
        seed(load(name).model, 0)(*arguments, **options)
    assert words in str(raised.value)
