"""One token's posterior on a grid: every number against quadrature over the scores, networks one by one, a plain dense grid."""

from functools import cache

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

from hierattn import Architecture, InputError, Law, Observations, kernels
from hierattn.inference.methods import priors
from hierattn.inference.methods.one_token import ambiguity, grid, surface
from hierattn.inference.methods.one_token.variances import table
from hierattn.inference.problem import Problem, pose
from hierattn.models import finite_head_dim, infinite_heads, limit_law
from tests.inference.drawn import observe
from tests.statistics import LEVEL, SIGMAS, follows, within

RNG = np.random.default_rng(0)
PAIR = np.array([[1.3, 0.4], [0.4, 0.7]])
GENERAL = kernels.from_inputs(RNG.normal(size=(4, 6)))


def posed(observations, layer, prior=None):
    return pose(observations, layer, limit_law if layer.head_dim is None else finite_head_dim, prior)


def given_sums(t, n, layer, K, token=0, prior=None) -> Problem:
    """A problem whose networks have these sums of squares over n coordinates."""
    y = np.zeros((len(t), 1, n))
    y[:, 0, 0] = np.sqrt(t)
    return posed(Observations(y, K, tokens=[token], heads=layer.heads), layer, prior)


# the likelihood


def two_keys(t, n, q, o, biases=(0.0,)):
    """Log likelihoods of networks whose token sees two keys: the trapezoid rule over the heads' score differences."""
    (a, c), (_, b) = PAIR
    z = np.linspace(-8, 8, {1: 321, 2: 161, 3: 61}[len(biases)])
    w, v = np.ones(()), np.zeros(())
    for bias in biases:
        th = np.tanh((q * np.sqrt(a * (a + b - 2 * c)) * z + bias) / 2)
        u = (a + b + 2 * c) / 4 + th * (a - b) / 2 + th**2 * (a + b - 2 * c) / 4
        v, w = np.add.outer(v, u / len(biases)), np.multiply.outer(w, stats.norm.pdf(z) * (z[1] - z[0]))
    terms = -n / 2 * np.log(2 * np.pi * o**2 * v.ravel()) - np.multiply.outer(t, 1 / v.ravel()) / (2 * o**2)
    return special.logsumexp(terms, b=w.ravel(), axis=-1)


SCALES = list(zip((0.2, 1.0, 2.7), (1.1, 1.0, 0.9), strict=True))


CASES = [((0.0,), 1, 1e-5), ((0.5,), 16, 2e-4), ((0.0, 0.0), 1, 1e-5), ((0.0, 0.0), 300, 2e-3), ((1.0, 0.0, 1.0), 4, 2e-5)]


@pytest.mark.parametrize(("biases", "n", "error"), CASES)
def test_likelihood_of_two_keys(biases, n, error):
    """Where networks of the law are; a score_scale wrong by 2 % is seen."""
    t = n * (np.array([0.15, 0.4, 0.75, 1.0, 1.6, 3.0]) if n < 100 else np.array([0.45, 0.6, 0.75, 0.9, 1.1]))
    t = np.concatenate([[1e-12] * (n == 1), t])
    bias = np.zeros((len(biases), 2, 2))
    bias[:, 0, 0] = biases
    layer = Architecture(heads=len(biases), bias=bias)
    found = grid.log_likelihood(given_sums(t, n, layer, PAIR), *zip(*SCALES, strict=True))
    exact = np.array([two_keys(t, n, *scales, biases) for scales in SCALES])
    log_density = exact + n / 2 * np.log(t)  # of log t
    typical = log_density > log_density.max(axis=1, keepdims=True) - 8
    assert typical.mean() > 0.5
    np.testing.assert_allclose(found[typical], exact[typical], atol=error)
    np.testing.assert_allclose(found, exact, rtol=0.02)
    wrong = np.array([two_keys(t, n, 1.02 * q, o, biases) for q, o in SCALES])
    assert np.abs(found - wrong)[typical].max() > 5 * error


def test_likelihood_of_four_keys():
    """By a trapezoid rule over all four scores of a head: within 1e-4 where networks of the law are."""
    n, token, t = 5, 2, np.array([0.6, 1.5, 3.0, 6.0, 11.0])
    z = np.stack(np.meshgrid(*[np.arange(-6, 6.1, 0.5)] * 4), axis=-1).reshape(-1, 4)
    w = stats.norm.pdf(z).prod(axis=1) / 16
    L = np.linalg.cholesky(GENERAL)
    found = grid.log_likelihood(given_sums(t, n, Architecture(), GENERAL, token), *zip(*SCALES[:2], strict=True))
    for (q, o), log_likelihood in zip(SCALES, found, strict=False):
        A = special.softmax(q * np.sqrt(GENERAL[token, token]) * z @ L.T, axis=1)
        v = o**2 * np.einsum("nj,jk,nk->n", A, GENERAL, A)
        exact = np.log((np.exp(-np.multiply.outer(t, 0.5 / v)) * (2 * np.pi * v) ** (-n / 2)) @ w)
        log_density = exact + n / 2 * np.log(t)
        typical = log_density > log_density.max() - 8
        np.testing.assert_allclose(log_likelihood[typical], exact[typical], atol=1e-4)


@pytest.mark.parametrize("heads", [1, 4])
def test_likelihood_at_finite_head_dim(heads):
    """One key: v is chi-square with H n_H degrees of freedom."""
    k, n, o = heads * 6, 3, 1.2
    t = np.array([0.05, 0.8, 3.0, 9.0, 20.0])
    layer = Architecture(heads=heads, head_dim=6)
    found = grid.log_likelihood(given_sums(t, n, layer, np.array([[2.0]])), np.ones(1), np.array([o]))[0]

    def density(x, t):
        v = 2 * o**2 * x / k
        return stats.chi2.pdf(x, k) * (2 * np.pi * v) ** (-n / 2) * np.exp(-t / (2 * v))

    exact = [np.log(integrate.quad(density, 0, 150, args=(t_m,), limit=400)[0]) for t_m in t]
    np.testing.assert_allclose(found, exact, atol=5e-5)


def test_networks_on_a_lattice_are_as_good_as_one_by_one():
    layer = Architecture(heads=2)
    problem = posed(observe(layer, GENERAL, 400, 5, [0]), layer)
    t, q, o = problem.observations.S[:, 0, 0], np.array([0.3, 0.9, 2.0]), np.array([1.1, 1.0, 0.7])
    laws = table(problem.law, 5, np.log(0.2), np.log(3.0))
    found = surface.surface(laws, surface.squares(t, 5), -3.0, 3.0)
    s = 2 * np.log(o) + found.log_mean(np.log(q))
    np.testing.assert_allclose(np.exp(found.log_o(np.log(q), s)), o, rtol=1e-12)
    exact = grid.log_likelihood(problem, q, o).sum(axis=1)
    np.testing.assert_allclose(found.log_likelihood(np.log(q), s), exact, atol=1e-4)
    rounded = surface.squares(np.exp(np.round(np.log(t) / 0.025) * 0.025), 5)
    assert np.abs(surface.surface(laws, rounded, -3.0, 3.0).log_likelihood(np.log(q), s) - exact).max() > 1e-3


def test_sharing_out_keeps_sums():
    x = 2 + 30 * RNG.random(1000)
    w = surface.sharing(x).sum(axis=0)
    for power in range(4):  # Lagrange's cubic is exact for cubics
        assert w @ np.arange(len(w)) ** power == pytest.approx(np.sum(x**power), rel=1e-12)


# the posterior


@cache
def small_problem():
    return posed(observe(Architecture(sigma_q=1.5), PAIR, 40, 8, [0]), Architecture())


@cache
def plain_grid():
    """Log q, log o and the exact log density of the two on a plain grid, up to a constant."""
    observations = small_problem().observations
    x, y = np.linspace(-5.5, 4.5, 61), np.linspace(-0.4, 0.8, 49) + np.log(observations.scale)
    t = observations.S[:, 0, 0] / np.exp(2 * y)[:, None]
    log_density = np.array([two_keys(t, 8, np.exp(a), 1.0).sum(axis=1) for a in x]) - 8 * len(observations.S) * y
    return x, y, log_density + stats.norm.logpdf(x)[:, None] + stats.norm.logpdf(y, np.log(observations.scale))


def brute_force(jacobian=True):
    """Mean and sd of (log q, log o)."""
    x, y, log_density = plain_grid()
    p = special.softmax(log_density if jacobian else log_density - x[:, None])
    assert max(p[[0, -1]].max(), p[:, [0, -1]].max()) < 1e-4 * p.max()
    means = np.array([p.sum(axis=1) @ x, p.sum(axis=0) @ y])
    return means, np.sqrt([p.sum(axis=1) @ (x - means[0]) ** 2, p.sum(axis=0) @ (y - means[1]) ** 2])


def test_posterior_is_that_of_a_plain_grid():
    """20,000 draws: means to 0.035 standard deviations, which a forgotten Jacobian exceeds."""
    found = grid.one_token(small_problem(), 3, 4, 5000)
    log_draws = np.log(np.stack([found.draws[name].ravel() for name in ("score_scale", "value_scale")], axis=1))
    assert found.draws["score_scale"].shape == found.statistics["lp"].shape == (4, 5000)
    (means, sds), (wrong, _) = brute_force(), brute_force(jacobian=False)
    error = sds / np.sqrt(len(log_draws))
    assert within(log_draws.mean(axis=0), means, error)
    assert within(log_draws.std(axis=0), sds, 2 * error)
    assert not within(log_draws.mean(axis=0), wrong, error)
    some = slice(0, 50)
    q, o = np.exp(log_draws[some]).T
    t, scale = small_problem().observations.S[:, 0, 0], small_problem().observations.scale
    exact = [two_keys(t, 8, *scales).sum() for scales in zip(q, o, strict=True)]
    exact += stats.norm.logpdf(np.log(q)) + stats.norm.logpdf(np.log(o), np.log(scale))
    np.testing.assert_allclose(found.statistics["lp"].ravel()[some], exact, atol=1e-4)


def test_same_seed_same_draws_and_float32_mode_stays():
    first, second, other = (grid.one_token(small_problem(), seed, 2, 50) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.draws["score_scale"], second.draws["score_scale"])
    assert np.all(first.draws["score_scale"] != other.draws["score_scale"])
    assert not jax.config.jax_enable_x64
    chains = first.draws["score_scale"]
    assert abs(stats.spearmanr(chains[0], chains[1]).statistic) < 0.6


def test_integration_error_is_small_and_reported():
    (reason,) = [r for r in grid.one_token(small_problem(), 0, 1, 10).reasons if r["code"] == "integrated"]
    assert 0 < reason["numbers"]["score_scale_error_sd"] < 0.01
    assert 0 < reason["numbers"]["value_scale_error_sd"] < 0.01


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_do_not_matter(scale):
    layer = Architecture()
    found, other = (
        grid.one_token(posed(observe(layer, PAIR, 30, 2, [0], scale=c), layer), 0, 1, 200).draws for c in (1.0, scale)
    )
    np.testing.assert_allclose(other["score_scale"], found["score_scale"], rtol=1e-3)
    np.testing.assert_allclose(other["value_scale"], scale * found["value_scale"], rtol=1e-3)


def test_draws_of_a_density_linear_between_points():
    u = (np.arange(20_000) + 0.5) / 20_000
    triangle = np.array([[0.0, 1.0, 0.0, 0.0]])
    x = grid.draw_from(np.array([0.0, 1.0, 2.0, 3.0]), triangle, u)
    assert follows(x, stats.triang(0.5, scale=2).cdf)
    each = grid.draw_from(np.array([0.0, 1.0, 2.0, 3.0]), np.tile(triangle, (len(u), 1)), u)
    np.testing.assert_array_equal(each, x)


# two modes


def modes(reasons):
    (found,) = [reason for reason in reasons if reason["code"] == "two_modes"]
    numbers = found["numbers"]
    return list(zip(numbers["score_scale"], numbers["value_scale"], numbers["mass"], strict=True))


@pytest.mark.parametrize("networks", [2000, 20_000])
def test_one_coordinate_of_one_token_has_two_explanations(networks):
    """At q = o = 1 the other one is (4.3, .71); estimates move both, but not their order."""
    layer = Architecture()
    found = grid.one_token(posed(observe(layer, np.eye(4), networks, 1, [0]), layer), 0, 1, 4000)
    (q, o, mass), (other_q, other_o, other_mass) = modes(found.reasons)
    assert 0.8 < q < 1.3
    assert o == pytest.approx(1, abs=0.06)
    assert 3 < other_q < 5.5
    assert other_o == pytest.approx(0.72, abs=0.04)
    assert mass + other_mass == pytest.approx(1, abs=0.02)
    larger = np.mean(found.draws["score_scale"] > np.sqrt(q * other_q))
    assert larger == pytest.approx(other_mass, abs=0.1)


def test_the_twin_of_one_is_four():
    """Outputs expected at (1, 1) have a second maximum of their likelihood near (4.3, .71), 1e-4 nats a network lower."""
    laws = table(Law(Architecture(), np.eye(4), [[1.0]]), 1, -3, 3)
    g = int(np.abs(laws.log_q).argmin())
    data = surface.expected_squares(laws, g, surface.squares(np.ones(10_000), 1))
    expected = surface.surface(laws, data, -0.3, 0.3)
    x, s = np.linspace(-3, 3, 601), np.linspace(-0.3, 0.3, 601)
    profile = expected.log_likelihood(x, s, grid=True).max(axis=1)
    places, _ = ambiguity.peaks(np.exp(profile - profile.max()))
    assert len(places) == 2
    assert x[places[0]] == pytest.approx(laws.log_q[g], abs=0.03)
    assert x[places[1]] == pytest.approx(np.log(4.3), abs=0.12)
    best = s[expected.log_likelihood(x[places], s, grid=True).argmax(axis=1)]
    assert np.exp(np.diff(expected.log_o(x[places], best))) == pytest.approx(0.71, abs=0.03)
    assert profile[places[0]] - profile[places[1]] == pytest.approx(1.0, abs=0.5)


def test_many_coordinates_have_one_explanation():
    layer = Architecture()
    found = grid.one_token(posed(observe(layer, np.eye(4), 300, 64, [0]), layer), 0, 1, 1000)
    assert [reason["code"] for reason in found.reasons] == ["integrated"]
    q = found.draws["score_scale"]
    assert abs(q.mean() - 1) < SIGMAS * q.std()
    assert q.std() < 0.2


def test_peaks():
    x = np.linspace(-5, 5, 1001)
    height = stats.norm.pdf(x, -2, 0.5) + 0.5 * stats.norm.pdf(x, 2, 0.5)
    places, cuts = ambiguity.peaks(height)
    np.testing.assert_allclose(x[places], [-2, 2], atol=0.02)
    assert x[cuts] == pytest.approx(0, abs=0.2)
    ripples = height * (1 + 1e-3 * np.cos(40 * x))
    assert len(ambiguity.peaks(ripples)[0]) == 2
    assert len(ambiguity.peaks(np.exp(-x))[0]) == 1


# what cannot be known, and what is refused


@pytest.mark.parametrize(
    ("layer", "K"),
    [(Architecture(mask="causal"), np.eye(3)), (Architecture(heads=2), np.ones((3, 3)))],
    ids=["one key", "equal"],
)
def test_score_scale_that_does_not_matter_keeps_its_prior(layer, K):
    observations = observe(layer, K, 40, 2, [0])
    found = grid.one_token(posed(observations, layer, {"score_scale": dist.LogNormal(0.5, 0.7)}), 0, 4, 2000)
    assert found.reasons[0]["code"] == "unidentified"
    assert "score_scale" in found.reasons[0]["message"]
    assert follows(np.log(found.draws["score_scale"]), stats.norm(0.5, 0.7).cdf)
    y = np.linspace(-1, 1, 2001) + np.log(observations.scale)
    p = np.exp(
        -80 * y - observations.S.sum() / (2 * np.exp(2 * y)) + stats.norm.logpdf(y, np.log(observations.scale)) + 80 * y[0]
    )
    p /= p.sum()
    mean = p @ y
    log_o = np.log(found.draws["value_scale"]).ravel()
    assert within(log_o.mean(), mean, np.sqrt(p @ (y - mean) ** 2 / len(log_o)))


def test_hardly_any_data():
    layer = Architecture()
    y = np.array([[[0.3]], [[0.0]]])  # a zero is possible
    found = grid.one_token(posed(Observations(y, np.eye(4), tokens=[0], heads=1), layer), 0, 1, 2000)
    assert all(np.all(np.isfinite(x)) for x in (*found.draws.values(), *found.statistics.values()))
    assert 0.7 < np.log(found.draws["score_scale"]).std() < 1.1


def test_bounded_and_contrary_priors():
    t = small_problem().observations.S[:, 0, 0]
    bounded = {"score_scale": dist.Uniform(0.5, 1.0), "value_scale": dist.Uniform(0.2, 3.0)}
    q = grid.one_token(given_sums(t, 8, Architecture(), PAIR, prior=bounded), 0, 1, 2000).draws["score_scale"]
    assert 0.5 <= q.min() < 0.6
    assert 0.95 < q.max() <= 1.0
    narrow = {"score_scale": dist.LogNormal(3.0, 0.01), "value_scale": dist.LogNormal(2.0, 0.01)}
    found = grid.one_token(given_sums(t, 8, Architecture(), PAIR, prior=narrow), 0, 1, 2000)
    assert np.log(found.draws["score_scale"]).mean() == pytest.approx(3.0, abs=0.02)
    assert np.log(found.draws["value_scale"]).mean() < 1.98  # the data pull it down
    excluded = {"value_scale": dist.Uniform(1e40, 2e40)}
    with pytest.raises(InputError, match="prior: expected one under which the outputs are possible"):
        grid.one_token(given_sums(t, 8, Architecture(), PAIR, prior=excluded), 0)


def test_priors_as_densities_of_logarithms():
    for prior, low, high in [(dist.LogNormal(1.0, 0.5), -2.0, 4.0), (dist.Uniform(0.1, 4.0), np.log(0.1), np.log(4.0))]:
        found = priors.span(prior, "score_scale")
        np.testing.assert_allclose(found, (low, high), atol=0.02)
        x = np.linspace(*found, 4001)
        assert np.trapezoid(np.exp(priors.log_density(prior, x)), x) == pytest.approx(1, abs=1e-3)
    x = np.array([[-50.0, 0.0], [1.0, 3.0]])
    np.testing.assert_allclose(priors.log_density(dist.HalfNormal(1.0), x), stats.halfnorm.logpdf(np.exp(x)) + x, atol=1e-6)
    assert priors.log_density(dist.Uniform(0.1, 4.0), np.array([2.0])) == -np.inf
    with pytest.raises(InputError, match="prior of score_scale: expected a distribution of positive numbers"):
        priors.span(dist.Delta(1.0), "score_scale")


def test_refusals():
    y = RNG.normal(size=(5, 2, 3))
    with pytest.raises(InputError, match="outputs: expected one token, got 2 tokens"):
        grid.one_token(posed(Observations(y, np.eye(2), heads=1), Architecture()), 0)
    each = Observations(y[:, :1], np.broadcast_to(np.eye(2), (5, 2, 2)), tokens=[0], heads=1)
    with pytest.raises(InputError, match="kernel: expected one for all networks"):
        grid.one_token(posed(each, Architecture()), 0)
    one = Observations(y[:, :1], np.eye(2), tokens=[0], heads=2)
    with pytest.raises(InputError, match="model: expected one of limit_law, finite_head_dim"):
        grid.one_token(pose(one, Architecture(heads=2), infinite_heads, None), 0)
    shared = Architecture(heads=2, head_dim=4, key_value_heads=1)
    with pytest.raises(InputError, match="layer: expected at finite head_dim, heads that share nothing"):
        grid.one_token(posed(one, shared), 0)
    assert LEVEL < 1e-5
