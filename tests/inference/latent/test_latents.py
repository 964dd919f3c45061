"""Scores and values made of latents: against the law itself, dense densities of the latents, and another gradient."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import multivariate_normal

from hierattn import Architecture, Law, kernels
from hierattn.inference.latent import heads, products, waves
from hierattn.inference.latent.latents import Latent
from hierattn.inference.likelihood import covariance, log_likelihood, log_prior, prepare, terms, terms_and_gradient_with_scale
from tests.inference.mutants import mutant
from tests.statistics import mean_agrees

pytestmark = pytest.mark.usefixtures("float64")
M, N, Q, VALUE = 3, 6, 1.3, 0.7
S = 4


def positive(s, seed=0, networks=()):
    X = np.random.default_rng(seed).normal(size=(*networks, s, s + 2))
    return X @ X.swapaxes(-1, -2) / (s + 2)


BIAS = np.random.default_rng(1).normal(size=(2, S, S))
SIGMOID = Architecture(heads=2, score_function="sigmoid")  # of whose keys nothing is centred
DESIGNS = {
    "head_dim": (SIGMOID.replace(head_dim=6, mask="causal", bias=BIAS), positive(S)),
    "head_dim, rotary": (Architecture(heads=2, head_dim=6, rotary=np.array([1.0, 0.3, 0.1])), positive(S)),
    "head_dim fewer than tokens, one group, a kernel a network": (
        SIGMOID.replace(head_dim=3, key_value_heads=1, scaling="linear"),
        positive(S, networks=(M,)),
    ),
}
NORMED = Architecture(heads=2, qk_norm="rms", qk_eps=0.2, sigma_k=0.7)
DESIGNS |= {
    "normed": (NORMED.replace(head_dim=6), positive(S)),
    "normed, mean taken off, a kernel a network": (NORMED.replace(head_dim=7, qk_norm="layer"), positive(S, networks=(M,))),
    "normed together, groups": (NORMED.replace(head_dim=3, qk_norm="rms_all", key_value_heads=1), positive(S)),
    "normed, rotary": (NORMED.replace(head_dim=4, qk_norm="layer", rotary=np.array([1.0, 0.3])), positive(S)),
}
EQUAL = kernels.rbf([0.0, 1.0, 1.0, 2.0], 1.0)
BASIS = np.array([[1, 0, 0], [0, 0.5**0.5, 0], [0, 0.5**0.5, 0], [0, 0, 1]])  # of outputs whose tokens 1 and 2 are equal
DESIGNS |= {"head_dim, equal tokens": (SIGMOID.replace(head_dim=6), EQUAL)}


trapezoid = jax.jit(heads.trapezoid, static_argnums=1)


def natural(data, x):
    """E, B, R and D (network first) as the law knows them; with rotary embeddings pairs of coordinates side by side."""
    n_H, rotary = data.made.head_dim, data.made.turn is not None
    free = n_H - (data.made.lengths is not None and data.made.lengths.kind == "layer")
    B = x.B if rotary else trapezoid(x.B, free)[0]
    R = None if x.R is None else np.moveaxis(np.asarray(trapezoid(x.R, free - x.E.shape[2])[0]), -1, 0)
    E, B, D = (np.moveaxis(np.asarray(a), -1, 0) for a in (x.E, B, trapezoid(x.D, n_H)[0]))
    order = np.arange(n_H).reshape(2, -1).T.ravel() if rotary else np.arange(E.shape[-1])
    return E[..., order], B[..., order], R, D


@pytest.mark.parametrize("name", DESIGNS)
def test_latents_make_the_scores_and_covariances_of_the_law(name):
    layer, K = DESIGNS[name]
    U = BASIS if K is EQUAL else None
    y = np.random.default_rng(0).normal(size=(M, S, N))
    data = prepare(y @ y.swapaxes(1, 2), N, layer, K, U=U)
    x = jax.jit(data.drawn)(jax.random.key(0))
    law = Law.from_factors(layer.with_scales(Q, VALUE), kernels.factor(K))
    E, B, R, D = natural(data, x)
    Sigma = np.asarray(jax.jit(lambda E, B, R, D: law.Sigma(law.scores_from(E, B, R), D))(E, B, R, D))
    Sigma = Sigma if U is None else U.T @ Sigma @ U
    found = VALUE**2 * np.moveaxis(np.asarray(jax.jit(covariance)(data, x, Q)), -1, 0)
    np.testing.assert_allclose(found, Sigma, rtol=1e-9, atol=1e-12)
    value = jax.jit(lambda x: log_likelihood(data, terms(data, x, Q), VALUE))(x)
    for m in range(M):
        y_m = y[m] if U is None else U.T @ y[m]
        expected = multivariate_normal(np.zeros(len(Sigma[m])), Sigma[m]).logpdf(y_m.T).sum()
        np.testing.assert_allclose(value[m], expected, rtol=1e-9)


GRADIENTS = DESIGNS | {
    "softmax": (Architecture(heads=2, head_dim=6, mask="causal"), positive(S)),
    "rotary": (Architecture(heads=2, rotary=np.array([1.0, 0.3])), positive(S)),
}


def gradient_is_right(module, layer, K):
    """Along a direction, by differences of the density of latents and data."""
    y = np.random.default_rng(0).normal(size=(M, S, N))
    data = prepare(y @ y.swapaxes(1, 2), N, layer, K, U=BASIS if K is EQUAL else None)

    x, along = jax.jit(data.drawn)(jax.random.key(0)), jnp.cos(jnp.arange(data.latent_dim * M)).reshape(-1, M)

    @jax.jit
    def density(data, x, along, d):
        at = jax.tree.map(lambda a, b: a + d * b, x, data.shaped(along))
        square = sum(jnp.sum(a**2) for a in jax.tree.leaves(at)) / 2
        return jnp.sum(log_likelihood(data, terms(data, at, Q), VALUE) + log_prior(data, at)) + square

    @jax.jit
    def gradient(data, x, along):
        found = module.terms_and_gradient(data, x, Q, VALUE)[1]
        return sum(jnp.sum(a * b) for a, b in zip(*map(jax.tree.leaves, (found, data.shaped(along))), strict=True))

    expected = (density(data, x, along, 1e-5) - density(data, x, along, -1e-5)) / 2e-5
    return np.isclose(gradient(data, x, along), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["normed", "head_dim", "softmax"])
def test_the_gradient_in_the_scale_is_a_difference(name):
    """Of scores that are linear in E, and of others."""
    layer, K = GRADIENTS[name]
    y = np.random.default_rng(0).normal(size=(M, S, N))
    data = prepare(y @ y.swapaxes(1, 2), N, layer, K)
    x = jax.jit(data.drawn)(jax.random.key(0))
    value = jax.jit(lambda q: jnp.sum(log_likelihood(data, terms(data, x, q), VALUE)))
    expected = (value(Q * np.exp(1e-5)) - value(Q * np.exp(-1e-5))) / 2e-5
    found = jax.jit(lambda: terms_and_gradient_with_scale(data, x, Q, VALUE))()[2]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_differences(name):
    from hierattn.inference import likelihood

    assert gradient_is_right(likelihood, *GRADIENTS[name])


def test_a_wrong_gradient_is_seen():
    from hierattn.inference import likelihood

    for right, wrong in [("q * dp, dV,", "dp, dV,"), ("jnp.ones_like(found.beyond)", "jnp.zeros_like(found.beyond)")]:
        assert not gradient_is_right(mutant(likelihood, right, wrong), *GRADIENTS["softmax"])


def test_gradients_of_products_are_those_of_plain_sums():
    rng = np.random.default_rng(0)
    X, Y, F = (jnp.asarray(rng.normal(size=shape)) for shape in ((3, 4, 1), (2, 1, 4, 2, 5), (2, 3, 4, 5)))
    cases = [
        (lambda X, Y: products.product(X, Y), lambda X, Y: jnp.einsum("icn,ghcjn->ghijn", jnp.broadcast_to(X, (3, 4, 5)), Y)),
        (lambda X, Y: products.gram(F * jnp.sum(X)), lambda X, Y: jnp.einsum("hicn,hjcn->ijn", F * jnp.sum(X), F * jnp.sum(X))),
    ]
    for ours, plain in cases:
        found, expected = (jax.value_and_grad(lambda *x, f=f: jnp.sum(jnp.sin(f(*x))), (0, 1))(X, Y) for f in (ours, plain))
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-10), found, expected)


def test_the_density_of_latents_is_that_of_wishart_factors():
    """NumPyro's own, with the volume of z -> sqrt(k) e^{a z / 2} on the diagonal, up to a constant."""
    n_H, r = 5, 4
    z = jnp.asarray(np.tril(np.random.default_rng(0).normal(size=(6, r, r))))
    W, beyond = heads.trapezoid(jnp.moveaxis(z, 0, -1)[None], n_H)
    W = jnp.moveaxis(W[0], -1, 0)
    a = np.sqrt(2 / (n_H - np.arange(r)))
    volume = jnp.sum(jnp.log(jnp.diagonal(W, axis1=1, axis2=2) * a / 2), axis=1)
    expected = dist.WishartCholesky(float(n_H), scale_tril=jnp.eye(r)).log_prob(W) + volume
    found = beyond - jnp.sum(z**2, axis=(1, 2)) / 2
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-9, atol=1e-9)


def drawn_rightly(module, layer):
    """Means of products and squares of B and D, 20,000 networks."""
    right = []
    data = prepare(np.zeros((1, S, S)), N, layer, np.eye(S))
    made = module.Heads(data.made.L_v, None, layer.head_dim, 1.0, data.made.shape)
    x = jax.jit(lambda: made.drawn(data, jax.random.key(1), 20_000))()
    for z in (x.B, x.D):
        W = np.moveaxis(np.asarray(trapezoid(z, layer.head_dim)[0][0]), -1, 0)
        G = W @ W.swapaxes(1, 2)
        right += [mean_agrees(G.reshape(len(G), -1), layer.head_dim * np.eye(len(G[0])).ravel())]
        variance = layer.head_dim * (1 + np.eye(len(G[0])))
        right += [mean_agrees(((G - layer.head_dim * np.eye(len(G[0]))) ** 2).reshape(len(G), -1), variance.ravel())]
    return all(right)


def test_latents_are_drawn_from_wishart_matrices():
    """Of fewer head dimensions than tokens too, for which a mistake is seen."""
    few, many = Architecture(heads=2, head_dim=3, key_value_heads=1), Architecture(heads=1, head_dim=7)
    assert drawn_rightly(heads, few)
    assert drawn_rightly(heads, many)
    assert not drawn_rightly(
        mutant(heads, "2 * jax.random.gamma(rng_key, k / 2,", "2 * jax.random.gamma(rng_key, k / 2 + 0.2,"), few
    )


def test_factors_are_rescaled_and_counted():
    """D times c has c^2 its squares, and the density of z changes as the count says."""
    data = prepare(np.zeros((2, S, S)), N, Architecture(heads=2, head_dim=3, key_value_heads=1), np.eye(S))
    x = data.drawn(jax.random.key(0))
    for name in ("B", "D"):
        number, square = data.made.gaussians(x, name)
        c = 0.3
        moved = data.made.rescaled(x, name, c)
        _, after = data.made.gaussians(moved, name)
        np.testing.assert_allclose(after, np.exp(2 * c) * square, rtol=1e-12)
        z, n_H = getattr(x, name), 3
        m, below = z.shape[2], int(np.tri(*z.shape[1:3]).sum()) - z.shape[2]
        gain = float(jnp.sum(log_prior(data, moved) - log_prior(data, x))) + z.shape[-1] * below * c
        expected = number * c - (after - square) / 2
        np.testing.assert_allclose(gain, expected, rtol=1e-9)
        assert number == 2 * (sum(n_H - i for i in range(m)) + below)
        assert isinstance(moved, Latent)


def test_waves_have_the_covariance_of_the_scores():
    """kappa' of the law, applied to every unit vector of scores; rows centred."""
    K, rotary = positive(S), np.array([1.0, 0.3])
    layer = Architecture(heads=1, rotary=rotary)
    R = np.asarray(waves.waves_of(layer.replace(score_function="sigmoid"), K, None).R)
    law = Law(layer, K)
    units = jnp.asarray(np.eye(S * S).reshape(S * S, 1, S, S))
    expected = np.asarray(law.kappa_prime(units)).reshape(S * S, S * S)
    np.testing.assert_allclose(R @ R.T, expected, atol=1e-12)
    less_mean = np.kron(np.eye(S), np.eye(S) - 1 / S)
    R = np.asarray(waves.waves_of(layer, np.stack([K, np.eye(S)]), None).R)[..., 0]
    np.testing.assert_allclose(R @ R.T, less_mean @ expected @ less_mean, atol=1e-12)
    assert R.shape[1] <= S * (S - 1)
