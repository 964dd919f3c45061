"""The generative model of a stack: the chain's law at infinite width, limit_law where there is one layer, and conditioning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density

from hierattn import MLP, Architecture, Block, Embedding, InputError, Norm, Stack, kernels
from hierattn.models import deep_law, limit_law
from tests.statistics import SIGMAS, mean_agrees

K = kernels.rbf(3, 1.0)
LAYER = Architecture(heads=2, sigma_q=1.5, sigma_v=1.2)
KNOWN = {"score_scale": 1.5, "value_scale": 1.2}
BLOCK = Block(attention=LAYER, mlp=MLP(activation="relu"), norm=Norm(eps=0.1), attention_gain=0.8, skip=0.9)
STACK = Stack(width=None, embedding=Embedding(kernel=K), blocks=[BLOCK] * 2, final_norm=Norm(eps=0.1))
NETWORKS = 4096


def drawn(stack, coordinates=1, networks=NETWORKS):
    """Sites of the program at known scales."""
    model = seed(substitute(deep_law.model, KNOWN), 0)
    with jax.enable_x64(True):
        sites = jax.jit(lambda: {k: v["value"] for k, v in _sites(model, stack, networks, coordinates).items()})()
    return {name: np.asarray(value) for name, value in sites.items()}


def _sites(model, stack, networks, coordinates):
    found = trace(model).get_trace(stack, networks=networks, coordinates=coordinates)
    return {k: v for k, v in found.items() if v["type"] in ("sample", "deterministic")}


@pytest.mark.parametrize(
    "placement", ["pre", *(pytest.param(name, marks=pytest.mark.slow) for name in ("post", "parallel", "sandwich", "branch"))]
)
def test_gram_matrices_are_those_of_the_chain(placement):
    """Means and squares; another score scale is seen."""
    block = Block(attention=LAYER, mlp=BLOCK.mlp, norm=BLOCK.norm, placement=placement, attention_gain=0.8, skip=0.9)
    stack = STACK.replace(blocks=[block] * 2, final_norm=None if placement == "post" else STACK.final_norm)
    found, chain = drawn(stack, 4), stack.sample(jax.random.key(1), NETWORKS).gram
    for k in (1, 2):
        own = found[f"gram_{k}"]
        for power in (1, 2):
            a, b = own**power, chain[:, k] ** power
            error = np.hypot(a.std(axis=0), b.std(axis=0)) / NETWORKS**0.5
            assert np.all(np.abs(a.mean(axis=0) - b.mean(axis=0)) <= SIGMAS * error + 1e-12)
    y = np.moveaxis(found["y"], 0, -1)  # (network, token, coordinate)
    last = chain[:, -1]
    assert mean_agrees(np.einsum("mic,mjc->mij", y, y) / 4, last.mean(axis=0) + 0 * last[0])
    other = stack.replace(blocks=[Block(attention=LAYER.replace(sigma_q=2.5), norm=BLOCK.norm)] * 2)
    assert not mean_agrees(other.sample(jax.random.key(1), NETWORKS).gram[:, 1], found["gram_1"].mean(axis=0))


def test_one_layer_without_skip_is_the_limit_law():
    """The same density at the same scores, parameters and outputs."""
    stack = Stack(width=None, embedding=Embedding(kernel=K), blocks=[Block(attention=LAYER, placement="none", skip=0.0)])
    rng = np.random.default_rng(0)
    y = rng.normal(size=(2, 3, 5))
    with jax.enable_x64(True):
        E = jnp.asarray(rng.normal(size=(2, 2, 3, 3)))
        ours, _ = log_density(deep_law.model, (stack, jnp.asarray(y)), {}, KNOWN | {"p_1_base": E})
        theirs, _ = log_density(limit_law.model, (LAYER, K, jnp.asarray(y)), {}, KNOWN | {"p_base": E})
    assert np.isclose(ours, theirs, rtol=1e-10)


def test_means_of_given_inputs_are_taken_off():
    """An MLP alone, after LayerNorm: nothing is random but outputs."""
    given = Embedding.given(0.7 + np.random.default_rng(0).normal(size=(3, 5)))
    stack = Stack(width=None, embedding=given, blocks=[Block(mlp=MLP(activation="relu"), norm=Norm(kind="layer", eps=0.1))])
    np.testing.assert_allclose(drawn(stack, networks=2)["gram_1"][0], stack.sample(jax.random.key(0)).gram[0, 1], rtol=1e-9)


@pytest.mark.slow
def test_a_shallow_stack_is_conditioned_on():
    """40 networks of two layers: the scales that they were drawn with lie within four posterior standard deviations."""
    stack = STACK.replace(blocks=[Block(attention=LAYER, norm=Norm())] * 2, final_norm=None)
    y = np.moveaxis(drawn(stack, 8, 40)["y"], 0, -1)
    with jax.enable_x64(True):
        mcmc = MCMC(NUTS(deep_law.model), num_warmup=300, num_samples=300, progress_bar=False)
        mcmc.run(jax.random.key(0), stack, jnp.asarray(y))
        draws = mcmc.get_samples()
    for name, truth in KNOWN.items():
        logs = np.log(np.asarray(draws[name]))
        assert abs(logs.mean() - np.log(truth)) < 4 * logs.std()
        assert logs.std() < 0.5  # a prior's is 1


def test_a_finite_head_dim_is_refused():
    stack = STACK.replace(blocks=[Block(attention=LAYER.replace(head_dim=4), norm=Norm())])
    with pytest.raises(InputError, match="head_dim: expected None"):
        drawn(stack)


def test_tokens_that_are_repeated_have_no_density():
    with pytest.raises(InputError, match="embedding: expected tokens of which none is determined by others, got rank 2 of 3"):
        drawn(STACK.replace(embedding=Embedding.of_tokens([1, 2, 1])))
