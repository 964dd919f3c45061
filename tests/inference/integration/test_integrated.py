"""Likelihoods with the scores integrated out: against the exact law of one token, and averages over many scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from hierattn import Architecture, Law, kernels
from hierattn.inference.integration import integrated
from hierattn.inference.likelihood import prepare
from tests.inference.mutants import mutant

pytestmark = pytest.mark.usefixtures("float64")
LAYER = Architecture(heads=2)
EXTREMES = np.array([0, 40])  # of 41 draws
Q, VALUE = np.exp(0.25 * stats.norm.ppf(np.linspace(0.01, 0.99, 41))), np.exp(0.1 * np.cos(np.arange(41.0)))


def one_token(layer=LAYER):
    """30 networks of one output each, of the middle of three tokens, whose density is the exact marginal's."""
    K, y = kernels.equicorrelated(3, 0.2), np.linspace(-3.5, 3.5, 30)
    laws = (Law(layer.with_scales(Q[i], VALUE[i]), K) for i in EXTREMES)
    return prepare(y[:, None, None] ** 2, 1, layer, K, tokens=[1]), np.stack([law.marginal(1).logpdf(y) for law in laws])


def one_token_of_heads():
    """The same at a finite head_dim: factors of keys and values are integrated too."""
    return one_token(Architecture(heads=2, head_dim=3))


def two_tokens():
    """8 networks with two coordinates of two tokens, one head: 400,000 scores p = q L E L' average well, 2 x 2 by hand."""
    K, rng = kernels.equicorrelated(2, 0.2), np.random.default_rng(0)
    y, E = rng.normal(size=(8, 2, 2)), rng.normal(size=(400_000, 2, 2))
    S, p, exact = y @ y.swapaxes(-1, -2), np.linalg.cholesky(K) @ E @ np.linalg.cholesky(K).T, []
    for i in EXTREMES:
        A = 1 / (1 + np.exp(Q[i] * (p[..., ::-1] - p)))
        Sigma = VALUE[i] ** 2 * A @ K @ A.swapaxes(-1, -2)
        a, b, d = Sigma[:, 0, 0], Sigma[:, 0, 1], Sigma[:, 1, 1]
        determinant = a * d - b**2
        trace = S[:, 0, 0, None] * d - 2 * S[:, 0, 1, None] * b + S[:, 1, 1, None] * a
        weight = np.exp(-trace / determinant / 2) / (4 * np.pi**2 * determinant)
        assert np.all(weight.std(axis=1) / weight.mean(axis=1) < 0.02 * np.sqrt(len(E)))
        exact.append(np.log(weight.mean(axis=1)))
    return prepare(S, 2, Architecture(heads=1), K), np.stack(exact)


@pytest.fixture(scope="module", params=[one_token, pytest.param(one_token_of_heads, marks=pytest.mark.slow), two_tokens])
def design(request):
    with jax.enable_x64(True):
        return request.param()


def covers(value, exact, error):
    """Are errors of the size they say? From 8 batches they are Student's t, with a root mean square of 1.2; extremes more."""
    return np.sqrt(np.mean(((value - exact) / error) ** 2)) < 3


def test_integrated_likelihoods_at_every_draw(design):
    """Away from the places where particles are made too."""
    data, exact = design
    found = integrated.of_limit_law(data, Q, VALUE, seed=0)
    assert found.value.shape == (len(Q), data.S.shape[-1])
    assert covers(found.value[EXTREMES], exact, found.error)
    assert found.error.max() < 0.1


def reweighted(module, data):
    """By all batches of particles made at two places away from the draws, with standard errors."""
    q, o, found = np.array([0.8, 1.4]), np.array([1.0, 0.9]), []
    for keys in jax.random.split(jax.random.key(3), (integrated.BATCHES, 2)):
        at = [integrated.particles_at(data, q[j], o[j], keys[j], integrated.PARTICLES) for j in range(2)]
        together = module.Particles(*jax.tree.map(lambda *x: jnp.stack(x), *at))
        found.append(module.reweighted(data, together, jnp.asarray(Q[EXTREMES]), jnp.asarray(VALUE[EXTREMES])))
    share = np.exp(np.asarray(found) - np.max(found, axis=0))
    return np.max(found, axis=0) + np.log(share.mean(axis=0)), share.std(axis=0, ddof=1) / share.mean(axis=0) / 8**0.5


MUTANTS = [
    ("return -dim * jnp.log(q)", "return -jnp.log(q)"),
    ("squares = at.squares * at.q[:, None, None] ** 2", "squares = at.squares"),
    ("- at.found.trace / (2 * o**2)", "- at.found.trace / o**2"),
    ("log_density(*place) - log_Z for", "log_density(*place) for"),
]


def test_particles_serve_other_places_and_mistakes_are_seen():
    data, exact = two_tokens()
    value, error = reweighted(integrated, data)
    assert covers(value, exact, error)
    for right, wrong in MUTANTS:
        value, error = reweighted(mutant(integrated, right, wrong), data)
        assert not covers(value, exact, error), wrong


def test_too_many_networks_are_not_attempted():
    layer, K = Architecture(heads=16), np.eye(4)
    few, many = (prepare(np.ones((M, 4, 4)) + np.eye(4), 4, layer, K) for M in (2, 1000))
    assert integrated.particles_for(few) == integrated.PARTICLES
    assert integrated.particles_for(many) == 0
    assert integrated.of_limit_law(many, np.ones(3), np.ones(3), seed=0) is None
