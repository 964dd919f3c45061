"""Distances and tests against divergences by quadrature, published values, simulated power, and data that are wrong."""

import jax
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import logsumexp

from hierattn import Architecture, Law, kernels
from hierattn.base.errors import InputError
from hierattn.diagnostics.comparison import against_gaussian, against_limit, compare, compare_outputs, limit
from hierattn.diagnostics.comparison import outputs as observed
from hierattn.law.marginal import from_draws
from tests.statistics import LEVEL, follows, within

FOUR = Law(Architecture(), np.eye(4))
WIDE = Law(Architecture(sigma_q=3.0), np.eye(4))
PAIR = Law(Architecture(sigma_q=2.0), [[1.3, 0.4], [0.4, 0.7]])


# finite against limit


@pytest.fixture
def without_tails(monkeypatch):
    """No ratios of quantiles, which are most of the work, and looked at in one test."""
    monkeypatch.setattr(limit, "TAILS", {})


def test_distances_of_two_laws():
    """KL and total variation by Simpson's rule between exact densities, against 65,536 draws of one of them."""
    found = against_limit(from_draws(FOUR, 0, 2**16, seed=1), WIDE.marginal())
    f, g = FOUR.marginal(), WIDE.marginal()
    y = np.linspace(0, 10, 2001)
    total = lambda values: 2 * integrate.simpson(values, y)  # noqa: E731
    exact = {
        "kl": total(f.pdf(y) * (f.logpdf(y) - g.logpdf(y))),
        "total_variation": total(np.abs(f.pdf(y) - g.pdf(y))) / 2,
        "ks_distance": np.abs(f.cdf(y) - g.cdf(y)).max(),
        "variance_finite": 0.3919714436,
        "excess_kurtosis_finite": 0.24331843,
        "square_correlation_finite": (0.24331843 / 3) / 2.24331843,
        "tail_ratio_999": f.isf(5e-4) / g.isf(5e-4),
    }
    for name, value in exact.items():
        assert within(found[name], value, found[f"{name}_error"] + 1e-5 * abs(value)), name
        assert found[f"{name}_error"] < 0.02 * value
    assert found["excess_kurtosis_limit"] == WIDE.marginal().excess_kurtosis
    assert abs(found["kl_floor"]) < 1e-3 * found["kl"]


@pytest.mark.usefixtures("without_tails")
def test_a_law_has_no_distance_from_itself():
    """What is left is noise: the plug-in estimate is all floor, positive by construction, and the estimate has none of it."""
    drawn = [from_draws(FOUR, 0, 2**12, seed) for seed in range(4)]
    found = [against_limit(x, FOUR.marginal()) for x in drawn]
    for x in found:
        assert within(x["kl"], 0, x["kl_error"])
        assert x["kl"] + x["kl_floor"] > 0
    floor, plug_in = (np.mean([x["kl_floor"] + add * x["kl"] for x in found]) for add in (0, 1))
    assert 0.4 < floor / plug_in < 2.5
    noise = [x["total_variation"] / x["total_variation_floor"] for x in found]
    assert 0.4 < np.mean(noise) < 2.5


@pytest.mark.usefixtures("without_tails")
@pytest.mark.parametrize(
    ("layer", "width", "kl"),
    [
        pytest.param(Architecture(heads=2), 16, 2.22e-2, marks=pytest.mark.slow),
        (Architecture(heads=2), 64, 2.13e-3),
        pytest.param(Architecture(head_dim=64), 64, 2.48e-3, marks=pytest.mark.slow),
    ],
)
def test_published_divergences(layer, width, kl):
    """THEORY section 10, to its printed digits."""
    found = compare(layer, width, networks=2**17)
    error = np.hypot(found["kl_error"], 0.005 * kl / 4.9)
    assert within(found["kl"], kl, error)
    assert found["kl_error"] < 0.05 * kl


@pytest.mark.usefixtures("without_tails")
def test_the_inputs_are_most_of_the_divergence():
    """Width 64 with inputs' Gram matrix fixed at K: n^2 KL = .18 (THEORY section 10), a fiftieth."""
    law = Law(Architecture(heads=2, head_dim=64), np.eye(4))
    found = against_limit(from_draws(law, 0, 2**17), law.with_infinite_head_dim().marginal())
    assert within(found["kl"], 0.18 / 64**2, found["kl_error"] + 0.005 / 64**2)
    assert not within(found["kl"], 2.13e-3, found["kl_error"])


@pytest.mark.usefixtures("without_tails")
def test_first_order_in_the_width():
    """At n = 256 and H = 2: E[v] = .39197 + .757 / n, excess kurtosis .24332 / H + (18.9 + 15.9 / H) / n, next order 2 %."""
    found = compare(Architecture(heads=2), 256, networks=2**17)
    assert within(found["variance_finite"], 0.39197 + 0.757 / 256, found["variance_finite_error"])
    kurtosis = 0.24332 / 2 + (18.9 + 15.9 / 2) / 256
    assert within(found["excess_kurtosis_finite"], kurtosis, found["excess_kurtosis_finite_error"] + 0.02 * kurtosis / 4.9)
    assert found["excess_kurtosis_limit"] == pytest.approx(0.24331843 / 2, abs=1e-7)


@pytest.mark.usefixtures("without_tails")
def test_a_given_head_dim_has_a_closer_law():
    found = compare(Architecture(heads=2, head_dim=16), 512, networks=2**15)
    assert found["head_dim_kl"] < 0.2 * found["kl"]
    closer = Law(Architecture(heads=2, head_dim=16), np.eye(4)).marginal()
    assert found["head_dim_excess_kurtosis_limit"] == pytest.approx(closer.excess_kurtosis, rel=1e-9)
    assert "head_dim_variance_finite" not in found
    assert found["gaussian_kl"] == pytest.approx(against_gaussian(Law(Architecture(heads=2, head_dim=16), np.eye(4)))["kl"])


@pytest.mark.usefixtures("without_tails")
def test_a_kernel_in_place_of_random_inputs():
    """Width 64 with inputs' Gram matrix fixed at K: the law of head_dim 64, n^2 KL = .18 (THEORY section 10)."""
    found = compare(Architecture(heads=2), 64, networks=2**17, kernel=np.eye(4))
    assert within(found["kl"], 0.18 / 64**2, found["kl_error"] + 0.005 / 64**2)
    assert found["token"] == 0
    given = compare(Architecture(heads=2, head_dim=4), 64, networks=2**12, kernel=np.eye(4))  # the head_dim of the layer
    assert within(given["head_dim_kl"], 0, given["head_dim_kl_error"])
    assert not within(given["kl"], 0, given["kl_error"])


@pytest.mark.parametrize(
    ("width", "options", "words"),
    [
        (64, {"activation": "relu"}, "activation: expected none with a kernel"),
        (64, {"tokens": 5}, "tokens: expected 4, as in the kernel, got 5"),
        (3, {}, "width: expected at least 4, the rank of the kernel, got 3"),
        (2.5, {}, "width: expected a positive whole number"),
        (64, {"token": 4}, "token: expected a whole number from 0 to 3, got 4"),
    ],
)
def test_what_contradicts_a_kernel_is_refused(width, options, words):
    with pytest.raises(InputError, match=words):
        compare(Architecture(), width, networks=2**12, kernel=np.eye(4), **options)


@pytest.mark.usefixtures("without_tails")
def test_without_a_token_it_is_one_that_sees_most_keys():
    """The first token of a causal mask sees only itself: its output is Gaussian."""
    law = Law(Architecture(mask="causal"), np.eye(3))
    assert against_gaussian(law) == against_gaussian(law, token=2)
    assert against_gaussian(law)["token"] == 2
    assert against_gaussian(law)["kl"] > 1e-4
    assert against_gaussian(law, token=0)["kl"] == pytest.approx(0, abs=1e-9)
    assert against_gaussian(FOUR)["token"] == 0
    found = compare_outputs(law.sample(jax.random.key(0), 50, 2), law)
    assert (found["token"], found["variance_law"]) == (2, law.marginal(2).variance)
    assert compare(Architecture(mask="causal"), 8, tokens=3, networks=2**8)["token"] == 2
    window = np.array([[True, False, False], [True, True, False], [False, True, True]])
    assert against_gaussian(Law(Architecture(mask=window), np.eye(3)))["token"] == 1
    with pytest.raises(InputError, match="token: expected a whole number from 0 to 2, got 3"):
        compare_outputs(np.ones((20, 3, 2)), law, token=3)


@pytest.mark.usefixtures("without_tails")
def test_progress_counts_all_networks():
    done = []
    compare(Architecture(), 8, tokens=2, networks=2**12, advance=done.append)
    assert sum(done) == 2**12


# Gaussian against law


def test_divergence_of_two_tokens_from_a_gaussian():
    """The density by a trapezoid rule over the score difference, the divergence by QUADPACK."""
    (a, c), (_, b) = np.asarray(PAIR.K, float)
    z = np.linspace(-9, 9, 2001)
    t = np.tanh(2.0 * np.sqrt(a * (a + b - 2 * c)) * z / 2)
    v = (a + b + 2 * c) / 4 + t * (a - b) / 2 + t**2 * (a + b - 2 * c) / 4
    w = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    sd = np.sqrt(w @ v)

    def integrand(y):
        f = w @ (np.exp(-(y**2) / (2 * v)) / np.sqrt(2 * np.pi * v))
        return f * (np.log(f) - stats.norm.logpdf(y, scale=sd))

    found = against_gaussian(PAIR)
    assert found["kl"] == pytest.approx(2 * integrate.quad(integrand, 0, 12, limit=200)[0], rel=1e-4)
    quantile = PAIR.marginal().isf(0.0005)
    assert w @ stats.norm.sf(quantile, scale=np.sqrt(v)) == pytest.approx(0.0005, rel=1e-6)
    assert found["quantile_error_999"] == pytest.approx(stats.norm.isf(0.0005) * sd / quantile - 1, rel=1e-6)
    assert found["quantile_error_999"] < 0


def test_a_gaussian_law_is_never_told_apart():
    found = against_gaussian(Law(Architecture(heads=2), [[2.0]]))
    assert found["kl"] == pytest.approx(0, abs=1e-12)
    assert found["networks_needed"] is None


@pytest.mark.parametrize(
    ("law", "coordinates"),
    [
        pytest.param(Law(Architecture(head_dim=2), np.eye(4)), 1, marks=pytest.mark.slow),
        (Law(Architecture(sigma_q=1.5), np.eye(4)), 16),
    ],
)
def test_power_at_the_networks_needed(law, coordinates):
    """The likelihood ratio test, simulated 1,000 times each way: size 5 % by its own quantile, power about 95 %."""
    networks = against_gaussian(law, coordinates=coordinates)["networks_needed"]
    marginal, repetitions, rng = law.marginal(), 1000, np.random.default_rng(0)
    variance = law.with_infinite_head_dim().marginal().variance
    x, w = (np.asarray(a[0]) for a in marginal.nodes)
    x, w = x[w > 0], w[w > 0]

    def log_ratio(y):
        square = (y**2).sum(axis=-1)[..., None]
        law_density = logsumexp(np.log(w) - square / 2 * np.exp(-x) - coordinates / 2 * x, axis=-1)
        return (law_density + square[..., 0] / (2 * variance) + coordinates / 2 * np.log(variance)).sum(axis=-1)

    shape = (repetitions, networks, coordinates)
    drawn = law.sample(jax.random.key(1), repetitions * networks, coordinates)[:, 0].reshape(shape)
    critical = np.quantile(log_ratio(rng.normal(size=shape) * np.sqrt(variance)), 0.95)
    assert 0.90 < np.mean(log_ratio(np.asarray(drawn, float)) > critical) < 0.98
    assert against_gaussian(law, coordinates=1)["networks_needed"] >= networks


# observed against law


@pytest.fixture(scope="module")
def outputs():
    return np.asarray(FOUR.sample(jax.random.key(3), 4000, 16), float)


@pytest.fixture(scope="module")
def compared(outputs):
    return compare_outputs(outputs, FOUR)


def test_outputs_of_the_law_fit_it(compared):
    found = compared
    assert min(found[f"{name}_p_value"] for name in ("ks", "scale", "projection")) > 1e-3
    assert within(found["kl"], 0, found["kl_error"])
    for name in ("variance", "excess_kurtosis", "square_correlation"):
        assert within(found[f"{name}_observed"], found[f"{name}_law"], found[f"{name}_observed_error"])
        assert found[f"{name}_observed_error"] < 0.2 * found[f"{name}_law"]
    for name in ("99", "999"):
        assert within(found[f"tail_ratio_{name}"], 1, found[f"tail_ratio_{name}_error"])
    assert found["excess_kurtosis_law"] == pytest.approx(0.24331843, abs=1e-6)
    assert found["tail_ratio_9999"] is None
    assert [reason["code"] for reason in found["reasons"]] == ["few_outputs"]


def mutants():
    """Another score scale; coordinates with scores of their own; a Gaussian."""
    other = np.asarray(Law(Architecture(sigma_q=1.3), np.eye(4)).sample(jax.random.key(4), 4000, 16), float)
    alone = np.asarray(FOUR.sample(jax.random.key(5), 4000 * 16, 1), float)
    sd = np.sqrt(0.3919714436)
    return {
        "score scale": other,
        "scores not shared": alone.reshape(4000, 16, 4).swapaxes(1, 2),
        "Gaussian": np.random.default_rng(6).normal(size=(4000, 4, 16)) * sd,
    }


def test_outputs_of_other_laws_do_not():
    """The second has the law's density, the third its variance: networks' mean squares tell."""
    found = {name: compare_outputs(y, FOUR) for name, y in mutants().items()}
    assert all(record["scale_p_value"] < LEVEL for record in found.values())
    assert found["scores not shared"]["ks_p_value"] > 1e-3
    assert found["scores not shared"]["square_correlation_observed"] < 0.2 * found["Gaussian"]["square_correlation_law"]


def test_tokens_are_tested_together(outputs, compared):
    """The right distribution for every token, but tokens of different networks: projections tell."""
    torn = np.concatenate([np.roll(outputs[:, [i]], i, axis=0) for i in range(4)], axis=1)
    found = compare_outputs(torn, FOUR, token=2)
    assert found["scale_p_value"] > 1e-3
    assert found["projection_p_value"] < LEVEL < compared["projection_p_value"]


def test_what_cannot_be_had_is_none_with_a_reason(outputs):
    found = compare_outputs(outputs[:30, :, :1], FOUR)
    assert found["square_correlation_observed"] is found["square_correlation_observed_error"] is None
    assert found["tail_ratio_99"] is found["tail_ratio_99_error"] is None
    codes = [reason["code"] for reason in found["reasons"]]
    assert codes == ["one_coordinate", "few_outputs", "few_outputs", "few_outputs"]
    assert found["reasons"][1]["numbers"]["expected"] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: y[:, :, 0], "outputs: expected shape"),
        (lambda y: y[:, :3], r"outputs: expected shape \(network, 4 tokens, coordinate\)"),
        (lambda y: y[:0], "outputs: expected shape"),
        (lambda y: y[:19], "at least 20 networks, got 19"),
        (lambda y: np.where(np.arange(16) == 5, np.nan, y), r"16000 NaN or infinite, the first at \(0, 0, 5\)"),
        (lambda y: np.where(np.arange(4)[:, None] == 0, 1.5, y), "outputs that vary, got one value, 1.5, for token 0"),
    ],
)
def test_errors_say_what_was_expected(outputs, change, words):
    with pytest.raises(InputError, match=words):
        compare_outputs(change(outputs), FOUR)


@pytest.mark.slow
def test_p_values_are_uniform(monkeypatch):
    """40 samples of 50 networks. The Bonferroni-corrected one may only be too large."""
    law, marginal = Law(Architecture(), np.eye(2)), Law(Architecture(), np.eye(2)).marginal()
    monkeypatch.setattr(Law, "marginal", lambda *_, **__: marginal)
    monkeypatch.setattr(observed, "_statistics", lambda *_: {})
    y = np.asarray(law.sample(jax.random.key(8), 2000, 3), float).reshape(40, 50, 2, 3)
    found = [compare_outputs(part, law, seed=seed) for seed, part in enumerate(y)]
    for name in ("ks_p_value", "scale_p_value"):
        assert follows([record[name] for record in found], "uniform")
    assert np.mean([record["projection_p_value"] < 0.2 for record in found]) < 0.4


def test_kernels_of_observed_inputs_are_laws_too():
    """A token that sees keys of unequal norms, seen from the second token."""
    K = kernels.from_inputs(np.random.default_rng(2).normal(size=(3, 5)))
    law = Law(Architecture(heads=2, mask="causal"), K)
    found = compare_outputs(law.sample(jax.random.key(0), 2000, 4), law, token=1)
    assert min(found["ks_p_value"], found["scale_p_value"], found["projection_p_value"]) > 1e-3
    wrong = compare_outputs(law.sample(jax.random.key(0), 2000, 4), Law(law.layer, 1.3 * K), token=1)
    assert wrong["scale_p_value"] < LEVEL
