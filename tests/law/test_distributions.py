import jax
import numpy as np
import numpyro
import pytest
from numpyro.handlers import reparam, seed, trace
from numpyro.infer.reparam import TransformReparam
from scipy import stats

from hierattn import Architecture, InputError, Law, kernels, rotary_frequencies, sequence_mask
from hierattn.law.distributions import Outputs, Scores, output_basis, score_base, wishart_factor
from tests.statistics import mean_agrees, same_distribution

KEY = jax.random.key(0)
K = kernels.rbf(3, 1.0)
LAYER = Architecture(heads=2, sigma_q=[0.7, 1.4], sigma_v=1.3)
EQUAL = kernels.rbf([0.0, 1.0, 1.0], 1.0)
RANK_ONE = np.outer([1.0, -0.5, 2.0], [1.0, -0.5, 2.0])
SLOW = pytest.mark.slow


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def density(make, x):
    """The log density of a distribution at x, both compiled as one program: one by one operations take far longer."""
    return np.asarray(jax.jit(lambda x: make().log_prob(x))(x))


def draw(make, number=()):
    return np.asarray(jax.jit(lambda: make().sample(KEY, number))())


def covariances(law, p):
    return np.asarray(jax.jit(law.Sigma)(p))


def test_density_of_scores_against_the_dense_gaussian():
    p = np.asarray(Law(LAYER, K).sample_scores(KEY, 5))
    found = density(lambda: Scores(Law(LAYER, K)), p)
    for m in range(5):
        expected = sum(
            stats.multivariate_normal(cov=q**2 * np.kron(K, K)).logpdf(np.ravel(p[m, a])) for a, q in enumerate([0.7, 1.4])
        )
        np.testing.assert_allclose(found[m], expected, rtol=1e-8)


def test_cross_attention_scores():
    law = Law(LAYER, K, kernels.equicorrelated(2, 0.3))
    p = draw(lambda: Scores(law), (4,))
    assert p.shape == (4, 2, 2, 3)
    dense = [q**2 * np.kron(kernels.equicorrelated(2, 0.3), K) for q in (0.7, 1.4)]
    expected = [
        sum(stats.multivariate_normal(cov=c).logpdf(np.ravel(x)) for c, x in zip(dense, p[m], strict=True)) for m in range(4)
    ]
    np.testing.assert_allclose(density(lambda: Scores(law), p), expected, rtol=1e-8)


def test_density_of_outputs_against_scipy():
    law = Law(LAYER, K)
    p, y = np.asarray(law.sample_scores(KEY, 4)), np.asarray(law.sample(KEY, 4))[:, :, 0]
    Sigma = covariances(law, p)
    expected = [stats.multivariate_normal(cov=S).logpdf(x) for S, x in zip(Sigma, y, strict=True)]
    np.testing.assert_allclose(density(lambda: Outputs(law, p), y), expected, rtol=1e-9)
    mean, variance = jax.jit(lambda: (Outputs(law, p).mean, Outputs(law, p).variance))()
    np.testing.assert_allclose(variance, np.diagonal(Sigma, axis1=1, axis2=2), rtol=1e-10)
    np.testing.assert_array_equal(mean, 0.0)


def test_shapes_under_batch_expand_and_vmap():
    law = Law(LAYER, K)
    p = np.asarray(law.sample_scores(KEY, 4))
    outputs, scores = (jax.eval_shape(lambda make=make: make()) for make in (lambda: Outputs(law, p), lambda: Scores(law)))
    assert (outputs.batch_shape, outputs.event_shape) == ((4,), (3,))
    assert jax.eval_shape(lambda: Outputs(law, p).sample(KEY, (5,))).shape == (5, 4, 3)
    y = draw(lambda: Outputs(law, p).expand([7, 4]))
    assert y.shape == (7, 4, 3)

    @jax.jit
    def several_ways(p, y):
        outputs = Outputs(law, p)
        mapped = jax.vmap(lambda d, y: d.log_prob(y))(jax.vmap(lambda p: Outputs(law, p))(p), y[0])
        one_by_one = jax.vmap(lambda p, y: Outputs(law, p).log_prob(y), in_axes=(0, 1), out_axes=1)(p, y)
        return outputs.expand([7, 4]).log_prob(y), one_by_one, outputs.log_prob(y[0]), mapped

    wide, one_by_one, first, mapped = several_ways(p, y)
    assert wide.shape == (7, 4)
    np.testing.assert_allclose(wide, one_by_one, rtol=1e-9)
    np.testing.assert_allclose(mapped, first, rtol=1e-9)
    assert (scores.batch_shape, scores.event_shape) == ((), (2, 3, 3))
    assert jax.eval_shape(lambda: Scores(law).expand([6]).sample(KEY)).shape == (6, 2, 3, 3)
    mapped, together = jax.jit(lambda p: (jax.vmap(Scores(law).log_prob)(p), Scores(law).log_prob(p)))(p)
    np.testing.assert_allclose(mapped, together, rtol=1e-9)


def test_samples_have_the_stated_covariance():
    law = Law(LAYER, K)
    p = np.asarray(law.sample_scores(KEY, 1))[0]
    y = draw(lambda: Outputs(law, p), (40_000,))
    assert mean_agrees(y[:, :, None] * y[:, None], covariances(law, p))
    scores = draw(lambda: Scores(law), (20_000,))[:, 1].reshape(-1, 9)
    assert mean_agrees(scores[:, :, None] * scores[:, None], 1.4**2 * np.kron(K, K))


def test_scores_of_a_singular_kernel_live_on_its_range():
    """K with two equal tokens: the density with respect to the range's own volume, from the nonzero eigenvalues."""
    law = Law(Architecture(), EQUAL)
    p = np.asarray(law.sample_scores(KEY, 3))
    values, vectors = np.linalg.eigh(np.kron(EQUAL, EQUAL))
    positive = values > 1e-10
    assert positive.sum() == 4
    moved = p + 0.1 * (np.arange(9).reshape(3, 3) == 1)
    found, off_range = np.split(density(lambda: Scores(law), np.concatenate([p, moved])), 2)
    for m in range(3):
        z = vectors[:, positive].T @ np.ravel(p[m])
        expected = stats.norm(scale=np.sqrt(values[positive])).logpdf(z).sum()
        np.testing.assert_allclose(found[m], expected, rtol=1e-6)
    assert np.all(off_range == -np.inf)


def test_outputs_of_equal_tokens_have_a_density_where_they_are_equal():
    law = Law(LAYER, EQUAL)
    basis = output_basis(law)
    assert basis.shape == (3, 2)
    p, y = np.asarray(law.sample_scores(KEY, 4)), np.asarray(law.sample(KEY, 4))[:, :, 0]
    found, off_range = density(lambda: Outputs(law, p), np.stack([y, y + 0.1 * np.array([0.0, 1.0, 0.0])]))
    distinct = covariances(law, p)[:, :2, :2]
    expected = [stats.multivariate_normal(cov=S).logpdf(x) for S, x in zip(distinct, y[:, :2], strict=True)]
    np.testing.assert_allclose(found, np.array(expected) - np.log(np.sqrt(2)), rtol=1e-6)  # the diagonal is sqrt(2) longer
    assert np.all(off_range == -np.inf)


@pytest.mark.parametrize(
    ("layer", "kernel", "rank"),
    [
        (Architecture(heads=1), K, None),
        (Architecture(heads=1, mask="causal"), K, None),
        (Architecture(heads=3), RANK_ONE, None),
        (Architecture(heads=1, mask=np.array([[1, 0, 0], [1, 0, 0], [1, 1, 1]], bool)), K, 2),
        (Architecture(heads=1, mask=sequence_mask([1, 2])), K, None),
        (Architecture(heads=2, scaling="linear"), K, 1),
        (Architecture(heads=2, head_dim=2), K, None),
        (Architecture(heads=1), np.ones((3, 3)), 1),
        (Architecture(heads=1, sigma_q=0.0), K, 1),
    ],
)
def test_where_outputs_have_a_density(layer, kernel, rank):
    basis = output_basis(Law(layer, kernel))
    assert (basis is None) if rank is None else (basis.shape == (3, rank))


@pytest.mark.parametrize(
    ("layer", "kernel", "words"),
    [
        (Architecture(heads=1), RANK_ONE, "Sigma of rank 1 that moves with the scores"),
        pytest.param(Architecture(heads=2), RANK_ONE, "Sigma of rank 2 that moves with the scores", marks=SLOW),
        pytest.param(Architecture(heads=1, head_dim=2), K, "Sigma of rank 2 that moves with the scores", marks=SLOW),
        (Architecture(heads=2, head_dim=2, sigma_v=[1.0, 0.0]), K, "Sigma of rank 2 that moves with the scores"),
        (Architecture(heads=1), np.zeros((3, 3)), "got K or the values zero"),
        (Architecture(heads=1, sigma_v=0.0), K, "got K or the values zero"),
    ],
)
def test_where_they_have_none(layer, kernel, words):
    """Sampling works all the same; the density says why it does not exist."""
    law = Law(layer, kernel)
    with pytest.raises(InputError, match=words):
        output_basis(law)
    p, D = law.sample_scores(KEY, 2), law.sample_values(KEY, 2)
    assert np.all(np.isfinite(draw(lambda: Outputs(law, p, D))))
    with pytest.raises(InputError, match=words):
        density(lambda: Outputs(law, p, D), np.zeros((2, 3)))


@pytest.mark.parametrize(("kernel", "heads"), [(kernels.rbf(4, 1.5), 1), (kernels.rbf(8, 1.5), 1), (np.eye(8), 1)])
def test_density_in_single_precision(kernel, heads):
    """Nearly singular Sigmas at JAX's default precision: no NaN, and close to double precision."""
    law = Law(Architecture(heads=heads), kernel)
    p, y = np.asarray(law.sample_scores(KEY, 500)), np.asarray(law.sample(KEY, 500))[:, :, 0]
    double = density(lambda: Outputs(law, p), y)
    single_law = Law(Architecture(heads=heads), kernel.astype(np.float32))
    single = density(lambda: Outputs(single_law, p.astype(np.float32)), y.astype(np.float32))
    assert single.dtype == np.float32
    assert np.all(np.isfinite(single))
    assert np.median(np.abs(single - double)) < 0.05


@pytest.mark.parametrize(("head_dim", "rotary"), [pytest.param(2, None, marks=SLOW), (6, None), (6, rotary_frequencies(6))])
def test_finite_head_dim_factors_give_the_same_scores(head_dim, rotary):
    """Scores made of NumPyro's factors against the law's own sampler, 20,000 networks, entry by entry."""
    law = Law(Architecture(heads=2, head_dim=head_dim, rotary=rotary), K)

    @jax.jit
    def draw():
        base = score_base(law)
        D = wishart_factor(law).sample(jax.random.key(3), (20_000,))
        p = law.scores_from(base.E.sample(KEY, (20_000,)), base.B.sample(jax.random.key(1), (20_000,)))
        return p, D @ D.mT

    p, square = map(np.asarray, draw())
    q = np.asarray(law.sample_scores(jax.random.key(2), 20_000))
    assert all(same_distribution(p[:, 1, i, j], q[:, 1, i, j]) for i in range(3) for j in range(3))
    assert mean_agrees(square / head_dim, np.eye(3))


def test_reparametrisation_keeps_the_law():
    def model():
        return numpyro.sample("p", Scores(Law(LAYER, K)))

    @jax.jit
    def draw():
        sites = trace(seed(reparam(model, {"p": TransformReparam()}), 0)).get_trace()
        base = sites["p_base"]["value"]
        return sites["p"]["value"], Law(LAYER, K).scores_from(base)

    np.testing.assert_allclose(*draw(), rtol=1e-12)


def test_what_has_no_density_says_so():
    with pytest.raises(InputError, match="head_dim: expected None: scores are Gaussian at infinite head_dim only"):
        Scores(Law(Architecture(head_dim=4), K))
    rotary = Law(Architecture(rotary=rotary_frequencies(4)), K)
    assert draw(lambda: Scores(rotary), (5,)).shape == (5, 1, 3, 3)
    with pytest.raises(InputError, match="p: expected a density of the scores, got rotary embeddings"):
        density(lambda: Scores(rotary), np.zeros((1, 3, 3)))
