"""One token's distribution: closed forms, QUADPACK, Fourier inversion and drawn networks against the nodes of its law."""

import tracemalloc
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from hierattn import Architecture, FiniteWidth, Law, RandomInputs, kernels, rotary_frequencies
from hierattn.base.errors import InputError
from hierattn.law import marginal, token_law
from hierattn.law.marginal import from_draws
from hierattn.numerics import mixtures, rqmc, scale_mixture
from hierattn.numerics import softmax_integrals as independent
from tests.statistics import SIGMAS, within
from tests.variants import variants

RNG = np.random.default_rng(0)
PAIR = np.array([[1.3, 0.4], [0.4, 0.7]])
GENERAL = kernels.from_inputs(RNG.normal(size=(4, 6)))
SIX = kernels.from_inputs(RNG.normal(size=(6, 9)))


def relative_error(found, exact):
    """The largest error relative to the peak."""
    return np.abs(found - exact).max() / np.abs(exact).max()


# closed forms


def test_one_key_is_gaussian():
    found = Law(Architecture(heads=3, sigma_v=1.5), [[2.0]]).marginal()
    exact, y = stats.norm(scale=np.sqrt(4.5)), np.linspace(-30, 30, 61)
    assert found.method == "closed form"
    np.testing.assert_allclose(found.pdf(y), exact.pdf(y), rtol=1e-12)
    np.testing.assert_allclose(found.cdf(y), exact.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(found.logsf(y), exact.logsf(y), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(found.ppf([0.01, 0.5, 0.999]), exact.ppf([0.01, 0.5, 0.999]), rtol=1e-12, atol=1e-14)
    assert found.density_error() == 0
    assert found.v_max == pytest.approx(4.5)


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 2), (2, 3), (1, 8), (2, 16)])
def test_one_key_at_finite_head_dim_is_variance_gamma(heads, head_dim):
    """Bessel's function K of order (H n_H - 1) / 2. With H n_H = 2 the density has a corner at 0 that nodes round off."""
    k = heads * head_dim
    found = Law(Architecture(heads=heads, head_dim=head_dim, sigma_v=1.5), [[2.0]]).marginal()
    y, a = np.linspace(0.05, 15, 200), np.sqrt(k / 4.5)
    log_factor = np.log(a / np.sqrt(np.pi)) - special.gammaln(k / 2) + (k - 1) / 2 * np.log(a * y / 2)
    exact = np.exp(log_factor + np.log(special.kve((k - 1) / 2, a * y)) - a * y)
    assert relative_error(found.pdf(y), exact) < (1e-4 if k == 2 else 1e-7)
    assert np.abs(found.pdf(y) - exact).max() <= found.density_error() * found.pdf(0.0) + 1e-12
    assert found.excess_kurtosis == pytest.approx(6 / k, rel=1e-9)


def test_identity_scores_with_two_heads_are_laplace():
    found = Law(Architecture(heads=2, score_function="identity"), [[1.0]]).marginal()
    exact, y = stats.laplace(scale=1 / np.sqrt(2)), np.linspace(0.05, 12, 300)
    assert np.all(np.abs(found.pdf(y) - exact.pdf(y)) <= found.error("pdf", y) + 1e-6)
    assert relative_error(found.pdf(y), exact.pdf(y)) < 1e-4
    np.testing.assert_allclose(found.logsf(y), exact.logsf(y), atol=1e-5)
    assert abs(found.pdf(0.0) - exact.pdf(0.0)) <= found.error("pdf", 0.0)
    assert abs(found.variance - 1) <= found.error("moment", 2) + 1e-9


def two_tokens(q, o):
    """E[g(v)] for two tokens by QUADPACK over the difference of their scores."""
    (a, c), (_, b) = PAIR
    sd = q * np.sqrt(a * (a + b - 2 * c))

    def expect(g):
        def integrand(z):
            t = np.tanh(sd * z / 2)
            v = o**2 * ((a + b + 2 * c) / 4 + t * (a - b) / 2 + t**2 * (a + b - 2 * c) / 4)
            return g(v) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

        return integrate.quad(integrand, -12, 12, epsabs=0, epsrel=1e-11, limit=500)[0]

    return expect


@pytest.mark.parametrize(("q", "o"), [(0.3, 1.0), (1.0, 2.0), (5.0, 1.0)])
def test_two_tokens(q, o):
    found, expect = Law(Architecture(sigma_q=q, sigma_v=o), PAIR).marginal(), two_tokens(q, o)
    sd = np.sqrt(expect(lambda v: v))
    for y in np.array([0.0, 0.1, 0.7, 1.5, 4.0]) * sd:
        density = expect(lambda v: np.exp(-(y**2) / (2 * v)) / np.sqrt(2 * np.pi * v))  # noqa: B023
        assert found.pdf(y) == pytest.approx(density, abs=1e-7 / sd)
        assert found.cdf(y) == pytest.approx(expect(lambda v: special.ndtr(y / np.sqrt(v))), abs=1e-7)  # noqa: B023
        assert found.sf(y) == pytest.approx(expect(lambda v: special.ndtr(-y / np.sqrt(v))), abs=1e-7)  # noqa: B023
    far = 12 * sd
    assert found.logsf(far) == pytest.approx(np.log(expect(lambda v: special.ndtr(-far / np.sqrt(v)))), rel=1e-6)
    for p in (0.001, 0.2, 0.9):
        y = found.ppf(p)
        assert expect(lambda v: special.ndtr(y / np.sqrt(v))) == pytest.approx(p, rel=1e-6)  # noqa: B023


# the accuracy that is claimed


def inverted(K, heads, y):
    """The density of equal heads and exchangeable keys: one head's characteristic function to the power H, inverted."""
    s, c = len(K), K[0, 1]
    d = K[0, 0] - c
    tau = np.sqrt(K[0, 0] * d)
    variance = d * independent.moments(np.ones(s), np.zeros(s), np.full(s, tau)).mean + c
    if heads == 1 and c == 0:
        return independent.density(y / np.sqrt(d), s, tau) / np.sqrt(d)
    Y = np.linspace(0, 14, 1001) * np.sqrt(variance / d)
    f = independent.density(Y, s, tau) * Y[1] * 2
    f[0] /= 2
    t = np.linspace(0, 12 / np.sqrt(variance), 2000)
    phi = (np.cos(np.multiply.outer(t * np.sqrt(d / heads), Y)) @ f) * np.exp(-c * t**2 / (2 * heads))
    weight = phi**heads * t[1] / np.pi
    weight[0] /= 2
    return np.cos(np.multiply.outer(y, t)) @ weight


@pytest.mark.parametrize(
    ("activation", "s", "heads"),
    [
        *(("clip", 2, 1), ("clip", 3, 8), ("clip", 4, 2), ("clip", 4, 256), ("clip", 8, 256), ("clip", 16, 2)),
        *(("relu", 4, 8), ("relu", 16, 1)),
        *(pytest.param("clip", 2, heads, marks=pytest.mark.slow) for heads in (2, 8, 256)),
        *(pytest.param("clip", 3, heads, marks=pytest.mark.slow) for heads in (1, 2, 256)),
        *(pytest.param("clip", 4, heads, marks=pytest.mark.slow) for heads in (1, 8)),
        pytest.param("clip", 8, 1, marks=pytest.mark.slow),
        pytest.param("relu", 4, 1, marks=pytest.mark.slow),
    ],
)
def test_density_is_as_accurate_as_claimed(activation, s, heads):
    """At 1,000 points: within 1e-7 of the peak up to four tokens and 1e-6 beyond, and never far above the stated error."""
    K = kernels.activation(activation, s)
    found = Law(Architecture(heads=heads), K).marginal()
    y = np.linspace(0, 8, 1000) * np.sqrt(found.variance)
    error = relative_error(found.pdf(y), inverted(K, heads, y))
    assert error < (1e-7 if s <= 4 else 1e-6)
    assert found.density_error() <= 1e-7
    assert error <= max(2 * found.density_error(), 1e-9)


@pytest.mark.parametrize(("q", "s"), [(4.0, 3), (12.0, 8), (0.1, 8)])
def test_wide_and_narrow_scores(q, s):
    found = Law(Architecture(sigma_q=q), np.eye(s)).marginal()
    step = 0.4 / np.sqrt(s)
    y = (np.arange(round(10 / step)) + 0.5) * step
    exact = independent.moments(np.ones(s), np.zeros(s), np.full(s, q))
    f = found.pdf(y) * 2 * step
    assert f.sum() == pytest.approx(1, abs=1e-6)
    assert f @ y**2 == pytest.approx(exact.mean, rel=1e-6)
    assert f @ y**4 == pytest.approx(3 * (exact.variance + exact.mean**2), rel=1e-5)


# every kind of layer, against its moments and against drawn networks

LAYERS = {
    "narrow heads": (Architecture(heads=2, head_dim=8), GENERAL, 1),
    "wider heads, six tokens": (Architecture(head_dim=64), SIX, 2),
    "causal": (Architecture(heads=2, mask="causal"), SIX, 2),
    "bias per head": (Architecture(heads=2, bias=RNG.normal(size=(2, 4, 4))), GENERAL, 3),
    "unequal heads": (Architecture(heads=3, sigma_q=[0.5, 1.0, 2.0], sigma_v=[1.0, 2.0, 0.5]), GENERAL, 0),
    "rotary": (Architecture(heads=2, rotary=rotary_frequencies(6)), GENERAL, 2),
    "identity": (Architecture(heads=4, score_function="identity"), PAIR, 1),
}
CHECKS = np.array([0.0, 0.5, 1.0, 2.0, 3.0])


@cache
def drawn(name, networks=2**16):
    layer, K, token = LAYERS[name]
    return from_draws(Law(layer, K), token, networks, seed=7)


def disagreement(found, other):
    """Of densities, in standard errors of the drawn one beyond what the other states."""
    y = CHECKS * np.sqrt(other.variance)
    apart = np.abs(found.pdf(y) - other.pdf(y)) - found.error("pdf", y)
    variances = abs(found.variance - other.variance) - found.error("moment", 2)
    return max((apart / other.standard_error("pdf", y)).max(), variances / other.standard_error("moment", 2))


@pytest.mark.parametrize("name", variants(LAYERS, ["narrow heads"]))
def test_every_layer(name, monkeypatch):
    """65,536 drawn networks have 1e-3 of statistical error: a score scale wrong by 10 % is seen."""
    monkeypatch.setattr(rqmc, "BUDGET", 2**22)
    layer, K, token = LAYERS[name]
    law = Law(layer, K)
    found, exact = law.marginal(token, accuracy=1e-5), law.moments(token)
    assert abs(found.variance - exact.variance) <= found.error("moment", 2) + exact.variance_error + 1e-8
    kurtosis_error = found.error("excess_kurtosis") + exact.excess_kurtosis_error
    assert abs(found.excess_kurtosis - exact.excess_kurtosis) <= kurtosis_error + 1e-6
    assert disagreement(found, drawn(name)) < SIGMAS
    assert found.density_error() < 1e-4
    assert found.method == ("RQMC" if "six" in name else "quadrature")
    mutant = Law(layer.replace(sigma_q=1.1 * layer.sigma_q), K).marginal(token, accuracy=1e-3)
    assert disagreement(mutant, drawn(name)) > SIGMAS


def test_grouped_heads_are_drawn(monkeypatch):
    """Nothing but Monte Carlo: 32,768 networks against moments by RQMC; a score scale wrong by 10 % is seen."""
    monkeypatch.setattr(rqmc, "BUDGET", 2**22)
    monkeypatch.setattr(token_law, "DRAWS", 2**15)
    layer = Architecture(heads=4, head_dim=8, key_value_heads=2)
    found, exact = Law(layer, GENERAL).marginal(1), Law(layer, GENERAL).moments(1)
    assert found.method == "Monte Carlo"
    assert abs(found.variance - exact.variance) <= found.error("moment", 2) + exact.variance_error
    kurtosis_error = found.error("excess_kurtosis") + exact.excess_kurtosis_error
    assert abs(found.excess_kurtosis - exact.excess_kurtosis) <= kurtosis_error
    mutant = Law(layer.replace(sigma_q=1.1), GENERAL).moments(1)
    assert abs(found.variance - mutant.variance) > found.error("moment", 2) + mutant.variance_error


# one distribution, seen from several sides


@pytest.fixture(scope="module")
def law():
    return Law(Architecture(heads=2, sigma_q=1.5), GENERAL)


@pytest.fixture(scope="module")
def found(law):
    return law.marginal(1)


def test_functions_agree_with_each_other(found):
    y = np.linspace(-6, 6, 25) * np.sqrt(found.variance)
    np.testing.assert_allclose(found.cdf(y) + found.sf(y), 1, rtol=1e-14)
    np.testing.assert_allclose(found.pdf(y), found.pdf(-y), rtol=1e-14)
    np.testing.assert_allclose(found.cdf(y), found.sf(-y), rtol=1e-14)
    np.testing.assert_allclose(found.logpdf(y), np.log(found.pdf(y)), rtol=1e-13)
    np.testing.assert_allclose(found.logsf(y), np.log(found.sf(y)), rtol=1e-10, atol=1e-14)
    h = 1e-4
    np.testing.assert_allclose((found.cdf(y + h) - found.cdf(y - h)) / (2 * h), found.pdf(y), atol=1e-8)


def test_quantiles_are_inverses(found):
    q = np.array([1e-6, 0.1, 0.5, 0.7, 0.999])
    np.testing.assert_allclose(found.cdf(found.ppf(q)), q, rtol=1e-12)
    np.testing.assert_allclose(found.ppf(1 - q), -found.ppf(q), rtol=1e-9, atol=1e-14)
    p = np.array([1e-300, 1e-12, 0.2, 0.5, 0.9])
    np.testing.assert_allclose(found.sf(found.isf(p))[1:], p[1:], rtol=1e-11)
    np.testing.assert_allclose(found.logsf(found.isf(p)), np.log(p), rtol=1e-12)


def test_moments_are_integrals_of_the_density(found):
    for k in (0, 2, 4, 6):
        exact = 2 * integrate.quad(lambda y: y**k * found.pdf(y), 0, 40, limit=200, epsrel=1e-11)[0]  # noqa: B023
        assert found.moment(k) == pytest.approx(exact, rel=1e-9)
    assert found.moment(1) == found.moment(3) == 0
    assert found.variance == found.moment(2)
    assert found.excess_kurtosis == pytest.approx(found.moment(4) / found.moment(2) ** 2 - 3, rel=1e-9)


@pytest.mark.parametrize("name", scale_mixture.FUNCTIONS)
def test_numpy_and_compiled_code_agree(name, found, monkeypatch):
    """At points up to where the density is zero, and in their order."""
    probabilities = np.array([[1e-300, 1e-9, 0.2], [0.5, 0.7, 0.999]])
    at = {"ppf": probabilities, "isf": probabilities, "moment": 6, "excess_kurtosis": None}
    at = at.get(name, np.array([[-300.0, -2.0, 0.0], [0.3, 5.0, 1e200]]))
    by_numpy = found.each(name, at)
    monkeypatch.setattr(mixtures, "LARGE", 0)
    compiled = found.each(name, at)
    assert by_numpy.shape == compiled.shape
    np.testing.assert_allclose(by_numpy, compiled, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("score_function", ["softmax", "identity"])
def test_numpy_and_compiled_laws_agree(score_function, monkeypatch):
    law = Law(
        Architecture(heads=2, head_dim=8, score_function=score_function, bias=np.linspace(-0.3, 0.3, 16).reshape(4, 4)), GENERAL
    )
    by_numpy = law.marginal(2).nodes
    monkeypatch.setattr(mixtures, "LARGE", 0)
    compiled = law.marginal(2).nodes
    np.testing.assert_allclose(by_numpy.x[:, ::4], compiled.x[:, ::4], rtol=1e-6, atol=1e-6)


def test_few_points_compile_nothing(caplog):
    law = Law(Architecture(heads=2), GENERAL)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        found = law.marginal(1, accuracy=1e-4)
        found.pdf(np.linspace(0, 3, 7)), found.isf(0.01), found.error("sf", 2.0), found.excess_kurtosis
    assert "Finished XLA compilation" not in caplog.text


def test_shapes_are_those_of_the_arguments(found):
    assert np.shape(found.pdf(np.zeros((2, 3)))) == np.shape(found.isf(np.full((2, 3), 0.1))) == (2, 3)
    assert np.shape(found.cdf(0)) == np.shape(found.error("ppf", 0.3)) == ()
    assert found.pdf(np.zeros(2)).dtype == np.float64


def test_tails_stay_below_their_bound(law, found):
    t = np.linspace(0, 20, 200) * np.sqrt(found.variance)
    assert np.all(found.tail_bound(t) >= 2 * found.sf(t) * (1 - 1e-12))
    assert found.v_max == pytest.approx(np.asarray(law.K).diagonal().max())
    close = Law(Architecture(sigma_q=30.0), np.eye(2)).marginal()
    assert 0.7 < 2 * close.sf(4.0) / close.tail_bound(4.0) < 1
    for unbounded in (law.layer.replace(head_dim=4), law.layer.replace(score_function="identity")):
        with pytest.raises(InputError, match="bounded conditional variance"):
            Law(unbounded, np.eye(2)).marginal(accuracy=0.1).tail_bound(1.0)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda law, found: law.marginal(accuracy=0.0), "accuracy: expected a number between 0 and 1"),
        (lambda law, found: law.marginal(accuracy=1.0), "accuracy: expected a number between 0 and 1"),
        (lambda law, found: law.marginal(4), "token: expected a whole number from 0 to 3"),
        (lambda law, found: law.marginal(True), "token: expected a whole number"),
        (lambda law, found: Law(Architecture(), np.zeros((2, 2))).marginal(), "outputs with a density"),
        (lambda law, found: Law(Architecture(sigma_v=0.0), np.eye(2)).marginal(), "outputs with a density"),
        (lambda law, found: found.ppf([0.5, 1.0]), "q: expected probabilities between 0 and 1"),
        (lambda law, found: found.isf(0.0), "p: expected probabilities between 0 and 1"),
        (lambda law, found: found.isf(np.nan), "p: expected probabilities between 0 and 1"),
        (lambda law, found: found.moment(2.0), "k: expected a whole number"),
        (lambda law, found: found.moment(-1), "k: expected a whole number"),
        (lambda law, found: found.error("mode"), "function: expected one of pdf, logpdf"),
        (lambda law, found: from_draws(law, networks=31), "networks: expected a whole number of at least 32"),
        (lambda law, found: from_draws(law, networks=1e6), "networks: expected a whole number"),
        (lambda law, found: from_draws(law, token=-1), "token: expected a whole number"),
    ],
)
def test_errors_say_what_was_expected(law, found, ask, words):
    with pytest.raises(InputError, match=words):
        ask(law, found)


# derivatives


SLOPES = {
    "one token": (Architecture(heads=2), [[2.0]], 1e-5),
    "two independent tokens": (Architecture(), np.eye(2), 1e-5),
    "three tokens": (Architecture(heads=2), GENERAL[:3, :3], 1e-5),  # as four, with a hundredth of the points
    "four tokens": (Architecture(heads=2), GENERAL, 1e-5),
    "six tokens": (Architecture(heads=2), SIX, 1e-3),
}


@pytest.mark.parametrize("name", variants(SLOPES, ["three tokens"]))
def test_derivatives_of_the_density(name):
    """d log f(0.7) in score scale and K's diagonal, and in value scale o, against differences of concrete laws.

    o is a scale: f(y) = g(y / o) / o, so that its derivative is one in y.
    """
    layer, K, tolerance = SLOPES[name]
    K = np.asarray(K)

    @cache
    def concrete(x):
        return Law(layer.with_scales(1 + x, 1.3), K * (1 + x * np.eye(len(K)))).marginal(accuracy=1e-3)

    def logpdf(x, y=0.7):
        return concrete(x).logpdf(y)

    def abstract(x, o):
        L = jnp.linalg.cholesky(K * (1 + x * jnp.eye(len(K))))
        return Law.from_factors(layer.with_scales(1 + x, o), L).marginal().logpdf(0.7)

    with jax.enable_x64(True):
        value, slopes = jax.jit(jax.value_and_grad(abstract, argnums=(0, 1)))(0.0, 1.3)
    assert float(value) == pytest.approx(logpdf(0.0), rel=1e-2 * tolerance)
    h = 1e-3
    exact = [(logpdf(h) - logpdf(-h)) / (2 * h), -(1 + 0.7 * (logpdf(0.0, 0.7 + h) - logpdf(0.0, 0.7 - h)) / (2 * h)) / 1.3]
    np.testing.assert_allclose(slopes, exact, rtol=tolerance)


def test_derivatives_need_float64_and_say_so():
    def logpdf(q):
        return Law.from_factors(Architecture().with_scales(q, 1.0), np.linalg.cholesky(PAIR)).marginal().logpdf(0.7)

    with pytest.raises(InputError, match="law: expected JAX's float64 mode inside jit and grad, got float32; use"):
        jax.grad(logpdf)(1.0)
    with jax.enable_x64(True):
        assert jax.jit(jax.grad(logpdf))(1.0).dtype == np.float64
    assert not jax.config.jax_enable_x64


def test_derivatives_in_the_argument(found):
    slopes = jax.vmap(jax.grad(found.cdf))(jnp.array([-1.0, 0.2, 2.0]))
    np.testing.assert_allclose(slopes, found.pdf(np.array([-1.0, 0.2, 2.0])), rtol=1e-5)
    assert float(jax.grad(found.ppf)(0.9)) == pytest.approx(1 / found.pdf(found.ppf(0.9)), rel=1e-5)


# drawn networks


def test_rows_leave_out_one_batch_each():
    """1,000 networks make 16 batches of 62, across chunks of 128; the last eight are not drawn."""
    law = Law(Architecture(heads=64), np.eye(64))
    found = from_draws(law, 3, 1000, seed=2)
    v = np.asarray(law.sample_variances(jax.random.key(2), 992, 3), float)
    batches = v.reshape(16, 62)
    expected = [v.mean(), *(np.delete(batches, b, axis=0).mean() for b in range(16))]
    np.testing.assert_allclose((found.nodes.w * np.exp(found.nodes.x)).sum(axis=1), expected, rtol=1e-9)
    jackknife = np.sqrt(15 / 16 * np.sum((np.array(expected[1:]) - np.mean(expected[1:])) ** 2))
    assert found.standard_error("moment", 2) == pytest.approx(jackknife, rel=1e-6)
    assert found.error("moment", 2) == pytest.approx(4 * jackknife, rel=1e-6)


@pytest.mark.parametrize(("seen", "drawn", "size"), [(0, 10, 4), (3, 1, 4), (4, 4, 4), (7, 20, 4), (5, 2, 100)])
def test_cutting_into_batches(seen, drawn, size):
    expected = {}
    for i in range(drawn):
        expected.setdefault((seen + i) // size, []).append(i)
    cut = {batch: part.tolist() for batch, part in marginal._batches_of(seen, np.arange(drawn), size)}
    assert cut == expected


def test_stated_errors_shrink_with_networks_and_cover_the_truth():
    """Sixteen times the networks, a quarter of the error (of which 16 batches know a fifth)."""
    law = Law(Architecture(heads=2, head_dim=8), PAIR)
    exact, y = law.marginal(1), np.array([0.0, 1.0, 2.0])
    few, many = (from_draws(law, 1, networks, seed=3) for networks in (2**12, 2**16))
    for drawn in (few, many):
        assert drawn.method == "Monte Carlo"
        assert within(drawn.pdf(y), exact.pdf(y), drawn.standard_error("pdf", y))
        assert within(drawn.ppf(0.999), exact.ppf(0.999), drawn.standard_error("ppf", 0.999))
        assert within(drawn.excess_kurtosis, exact.excess_kurtosis, drawn.standard_error("excess_kurtosis"))
    assert np.all((few.error("pdf", y) / many.error("pdf", y) > 2) & (few.error("pdf", y) / many.error("pdf", y) < 8))


def test_jackknife_error_of_a_mean_is_its_standard_error():
    x = RNG.normal(size=16)
    rows = (x.sum() - x) / 15
    assert marginal.jackknife_error(rows) == pytest.approx(x.std(ddof=1) / 4)


def test_finite_width_has_a_distribution():
    """E[v] = .39197 + .757 / n + O(n^-2) for clipped inputs (THEORY section 10)."""
    law = FiniteWidth(Architecture(heads=2), RandomInputs(256))
    found, again = law.marginal(networks=2**16, seed=1), from_draws(law, 0, 2**16, 1)
    np.testing.assert_array_equal(found.nodes.x, again.nodes.x)
    assert within(found.variance, 0.39197 + 0.757 / 256, found.standard_error("moment", 2) + 2e-5)
    assert not within(found.variance, 0.39197, found.standard_error("moment", 2))


def test_memory_does_not_grow_with_networks():
    """NumPy's peak: 2^21 draws would be 16 MB."""
    law, peaks = Law(Architecture(), np.eye(2)), []
    for networks in (2**16, 2**21):
        tracemalloc.start()
        from_draws(law, 0, networks)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 60e6
    assert peaks[1] < peaks[0] + 4e6
