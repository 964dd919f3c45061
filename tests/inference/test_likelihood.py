"""The likelihood from sufficient statistics: against SciPy on raw outputs, the law's own Sigma, and two other gradients."""

from fractions import Fraction
from functools import partial
from math import log

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from hierattn import Architecture, Law, kernels
from hierattn.inference.latent.products import WRITTEN_OUT
from hierattn.inference.likelihood import covariance, inverse, log_likelihood, prepare, terms, terms_and_gradient

pytestmark = pytest.mark.usefixtures("float64")
M, N, Q, VALUE = 3, 6, 1.3, 0.7


def positive(s, seed=0, networks=()):
    X = np.random.default_rng(seed).normal(size=(*networks, s, s + 2))
    return X @ X.swapaxes(-1, -2) / (s + 2)


def bias(H, s):
    return np.random.default_rng(1).normal(size=(H, s, s))


MASK = np.array([[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 1]], bool)
SOME = [3, 1, 0]
DESIGNS = {
    "causal": (Architecture(heads=2, mask="causal"), np.diag([1.0, 2.0, 0.5, 1.0]), SOME),  # the first three: equal shapes
    "causal, one bias": (Architecture(heads=2, mask="causal", bias=bias(1, 4)[0]), positive(4), SOME),
    "any mask, a bias a head": (Architecture(heads=2, mask=MASK, bias=bias(2, 4)), positive(4), SOME),
    "a kernel a network": (Architecture(heads=2), positive(3, networks=(M,)), [2, 0]),
    "equal tokens": (Architecture(heads=2), kernels.rbf([0.0, 1.0, 1.0, 2.0], 1.0), None),
    "identity scores": (Architecture(heads=2, score_function="identity", mask="causal", bias=bias(2, 3)), positive(3), None),
    "normed": (Architecture(heads=2, qk_norm="rms", qk_eps=0.3, sigma_k=0.5), positive(3), [2, 0]),
    "capped": (Architecture(heads=2, cap=1.2, mask="causal"), positive(3), None),
    "sinks": (Architecture(heads=2, sink=[0.4, -0.7]), positive(3), None),
    "one token": (Architecture(heads=2), np.array([[2.0]]), None),
    "long sums, one head": (Architecture(heads=1), positive(WRITTEN_OUT + 2), None),
}
BASIS = np.array([[1, 0, 0], [0, 0.5**0.5, 0], [0, 0.5**0.5, 0], [0, 0, 1]])  # of outputs whose tokens 1 and 2 are equal


@jax.jit
def all_routes(data, E):
    """Everything that is compared, compiled together; the finite difference last."""
    direction, step = jnp.cos(jnp.arange(E.size)).reshape(E.shape), 1e-6
    around = jax.lax.map(lambda d: terms(data, E + d * step * direction, Q), jnp.array([-1.0, 0.0, 1.0]))
    ends = jax.vmap(lambda found: jnp.sum(log_likelihood(data, found, VALUE)))(around)
    found, gradient = terms_and_gradient(data, E, Q, VALUE)
    return {
        "terms": jax.tree.map(lambda x: x[1], around),
        "log_likelihood": log_likelihood(data, found, VALUE),
        "Sigma": VALUE**2 * covariance(data, E, Q),
        "terms beside the gradient": found,
        "gradient": gradient,
        "automatic": jax.grad(dense)(E, data, Q, VALUE),
        "directional": jnp.sum(gradient * direction),
        "difference": (ends[2] - ends[0]) / (2 * step),
    }


def dense(E, data, q, o):
    """Sum of all log likelihoods by plain linear algebra, networks first: what automatic differentiation is given."""
    L_q, L_k, K, S, E = (jnp.moveaxis(x, -1, 0) for x in (data.L_q, data.L_k, data.K, data.S, E))
    L_q, L_k, K = (jnp.broadcast_to(x, (len(S), *x.shape[1:])) for x in (L_q, L_k, K))
    p, weighing = q * jnp.einsum("mic,mhcd,mjd->mhij", L_q, E, L_k), data.weighing
    p = (p if weighing.cap is None else weighing.cap * jnp.tanh(p / weighing.cap)) + weighing.added[..., 0]
    e = jnp.exp(p if weighing.allowed is None else jnp.where(weighing.allowed[..., 0], p, -jnp.inf))
    sink = 0 if weighing.sink is None else jnp.exp(weighing.sink[..., 0])
    A = e / (e.sum(axis=-1, keepdims=True) + sink)
    if weighing.function.name == "identity":
        A = p if weighing.allowed is None else jnp.where(weighing.allowed[..., 0], p, 0)
    A = A if data.U is None else jnp.einsum("it,mhij->mhtj", data.U, A)
    Sigma = o**2 * jnp.einsum("mhij,mjk,mhlk->mil", A, K, A) / A.shape[1]
    trace = jnp.trace(jnp.linalg.solve(Sigma, S), axis1=1, axis2=2)
    return jnp.sum(-data.n / 2 * jnp.linalg.slogdet(2 * jnp.pi * Sigma)[1] - trace / 2)


@pytest.fixture(scope="module", params=DESIGNS)
def design(request):
    """Data of M networks, their raw outputs y (on the basis), the law of each, and all routes at scores of the law.

    The latent E are solved for from scores p that the law makes of its own standard normals.
    """
    (layer, K, tokens), rng = DESIGNS[request.param], np.random.default_rng(0)
    U = BASIS if request.param == "equal tokens" else None
    tokens = np.arange(K.shape[-1]) if tokens is None else np.array(tokens)
    softmax = layer.weighing(*K.shape[-2:]).shift_invariant
    seen = layer.of_queries(tokens, *K.shape[-2:]).with_scales(Q, VALUE)
    y = rng.normal(size=(M, len(tokens), N)) if U is None else U @ rng.normal(size=(M, 3, N))
    with jax.enable_x64(True):
        laws = [Law(seen, K_m, K_m[tokens[:, None], tokens]) for K_m in ([K] * M if K.ndim == 2 else K)]
        data = prepare(y @ y.swapaxes(-1, -2), N, layer, K, tokens, U)
        base = [jnp.asarray(rng.normal(size=(layer.heads, law.L_q.shape[1], law.L_k.shape[1]))) for law in laws]
        scores_and_Sigma = jax.jit(lambda law, E: (p := law.scores_from(E), law.Sigma(p)))
        p, Sigma = map(np.stack, zip(*(scores_and_Sigma(law, E) for law, E in zip(laws, base, strict=True)), strict=True))
        E = np.stack([latent(data, m, p[m], softmax) for m in range(M)], axis=-1)
        found = jax.tree.map(np.asarray, all_routes(data, jnp.asarray(E)))
    return data, (y if U is None else U.T @ y), (Sigma if U is None else U.T @ Sigma @ U), laws, found


def latent(data, m, p, softmax):
    """E of scores, of whose rows only differences matter under softmax; that these are reached is asserted."""
    p = p - p.mean(axis=-1, keepdims=True) if softmax else p
    L_q, L_k = factors(data, m)
    E = np.linalg.pinv(L_q) @ p @ np.linalg.pinv(L_k).T / Q
    np.testing.assert_allclose(Q * L_q @ E @ L_k.T, p, atol=1e-10)
    return E


def factors(data, m):
    return [np.asarray(L[..., m if L.shape[-1] > 1 else 0]) for L in (data.L_q, data.L_k)]


def test_log_likelihood_is_that_of_the_raw_outputs_under_the_law(design):
    _, y, Sigma, _, found = design
    np.testing.assert_allclose(np.moveaxis(found["Sigma"], -1, 0), Sigma, rtol=1e-10, atol=1e-13)
    for m in range(M):
        density = multivariate_normal(np.zeros(len(Sigma[m])), Sigma[m])
        np.testing.assert_allclose(found["log_likelihood"][m], np.sum(density.logpdf(y[m].T)), rtol=1e-9)


def test_standard_normal_latents_have_the_covariance_of_the_scores(design):
    """kappa' = q^2 K_q (x) K_k, keys less their mean where a row's constant does not matter."""
    data, _, _, laws, _ = design
    for m, law in enumerate(laws):
        L_q, L_k = factors(data, m)
        less_mean = np.eye(len(L_k)) - law.layer.weighing(*law.shape).shift_invariant / len(L_k)
        S_q, S_k = law.score_factors()
        np.testing.assert_allclose(L_q @ L_q.T, S_q @ S_q.T, atol=1e-10)
        np.testing.assert_allclose(L_k @ L_k.T, less_mean @ S_k @ S_k.T @ less_mean, atol=1e-10)


def test_gradient_by_hand_is_that_of_two_other_routes(design):
    _, _, _, _, found = design
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-11), found["terms"], found["terms beside the gradient"])
    size = np.abs(found["automatic"]).max()
    np.testing.assert_allclose(found["gradient"], found["automatic"], rtol=1e-8, atol=1e-9 * size)
    np.testing.assert_allclose(found["directional"], found["difference"], rtol=1e-5, atol=1e-5 * (1 + size))


def exactly(Sigma):
    """Log determinant and trace of the inverse, in rational numbers."""
    t = len(Sigma)
    rows = [[Fraction(float(x)) for x in row] + [Fraction(int(i == j)) for j in range(t)] for i, row in enumerate(Sigma)]
    determinant = Fraction(1)
    for k in range(t):
        pivot = rows[k][k]
        determinant *= pivot
        rows[k] = [x / pivot for x in rows[k]]
        for i in set(range(t)) - {k}:
            factor = rows[i][k]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return determinant, float(sum(rows[i][t + i] for i in range(t)))


def test_nearly_singular_covariances_give_nan_or_the_truth():
    """Rank 2 and a little more, from 1e-6 to 1e-18 of it, with tokens of very different size."""
    rng = np.random.default_rng(0)
    little = np.repeat(10.0 ** -np.arange(6.0, 19.0), 20)
    F, G = rng.normal(size=(2, len(little), 3, 3))
    F[..., 2] = np.sqrt(little)[:, None] * G[..., 2]
    scale = 10 ** rng.uniform(-3, 3, size=(len(little), 3, 1))
    Sigma = (scale * F) @ (scale * F).swapaxes(-1, -2)
    P, logdet = (np.moveaxis(np.asarray(x), -1, 0) for x in inverse(jnp.moveaxis(jnp.asarray(Sigma), 0, -1)))
    finite = np.isfinite(logdet)
    np.testing.assert_array_equal(finite, np.isfinite(P).all(axis=(1, 2)))
    for m in np.flatnonzero(finite):
        determinant, trace = exactly(Sigma[m])
        assert determinant > 0
        np.testing.assert_allclose(logdet[m], log(determinant), atol=2e-2)
        np.testing.assert_allclose(np.trace(P[m]), trace, rtol=2e-2)
    assert finite[little > 1e-10].all()
    assert not finite[little < 1e-15].any()


def test_scores_that_hardly_differ_are_refused_not_guessed():
    """At a tiny score_scale all rows of A agree and Sigma has rank one: NaN, also in the gradient, so that no move is taken."""
    data = prepare(positive(2, networks=(M,)), N, *DESIGNS["a kernel a network"])
    E = jnp.asarray(np.random.default_rng(0).normal(size=data.latent_shape))
    found = all_routes(data, 1e-9 * E)
    assert np.isnan(found["log_likelihood"]).all()
    assert np.isnan(found["gradient"]).any()
    assert np.isfinite(all_routes(data, 1e-3 * E)["log_likelihood"]).all()
