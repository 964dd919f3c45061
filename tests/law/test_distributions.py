import jax
import jax.numpy as jnp
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


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def test_density_of_scores_against_the_dense_gaussian():
    p = Law(LAYER, K).sample_scores(KEY, 5)
    found = Scores(Law(LAYER, K)).log_prob(p)
    for m in range(5):
        expected = sum(
            stats.multivariate_normal(cov=q**2 * np.kron(K, K)).logpdf(np.ravel(p[m, a])) for a, q in enumerate([0.7, 1.4])
        )
        np.testing.assert_allclose(found[m], expected, rtol=1e-8)


def test_cross_attention_scores():
    law = Law(LAYER, K, kernels.equicorrelated(2, 0.3))
    p = Scores(law).sample(KEY, (4,))
    assert p.shape == (4, 2, 2, 3)
    dense = [q**2 * np.kron(kernels.equicorrelated(2, 0.3), K) for q in (0.7, 1.4)]
    expected = [
        sum(stats.multivariate_normal(cov=c).logpdf(np.ravel(x)) for c, x in zip(dense, p[m], strict=True)) for m in range(4)
    ]
    np.testing.assert_allclose(Scores(law).log_prob(p), expected, rtol=1e-8)


def test_density_of_outputs_against_scipy():
    law = Law(LAYER, K)
    p = law.sample_scores(KEY, 4)
    y = law.sample(KEY, 4)[:, :, 0]
    expected = [
        stats.multivariate_normal(cov=S).logpdf(x) for S, x in zip(np.asarray(law.Sigma(p)), np.asarray(y), strict=True)
    ]
    np.testing.assert_allclose(Outputs(law, p).log_prob(y), expected, rtol=1e-9)
    np.testing.assert_allclose(Outputs(law, p).variance, np.diagonal(law.Sigma(p), axis1=1, axis2=2), rtol=1e-10)
    np.testing.assert_array_equal(Outputs(law, p).mean, 0.0)


def test_shapes_under_batch_expand_and_vmap():
    law = Law(LAYER, K)
    p = law.sample_scores(KEY, 4)
    outputs = Outputs(law, p)
    assert (outputs.batch_shape, outputs.event_shape) == ((4,), (3,))
    assert outputs.sample(KEY, (5,)).shape == (5, 4, 3)
    wide = outputs.expand([7, 4])
    assert wide.sample(KEY).shape == (7, 4, 3)
    y = wide.sample(KEY)
    assert wide.log_prob(y).shape == (7, 4)
    one_by_one = jax.vmap(lambda p, y: Outputs(law, p).log_prob(y), in_axes=(0, 1), out_axes=1)(p, y)
    np.testing.assert_allclose(wide.log_prob(y), one_by_one, rtol=1e-9)
    mapped = jax.vmap(lambda d, y: d.log_prob(y))(jax.vmap(lambda p: Outputs(law, p))(p), y[0])
    np.testing.assert_allclose(mapped, outputs.log_prob(y[0]), rtol=1e-9)
    scores = Scores(law)
    assert (scores.batch_shape, scores.event_shape) == ((), (2, 3, 3))
    assert scores.expand([6]).sample(KEY).shape == (6, 2, 3, 3)
    np.testing.assert_allclose(jax.vmap(scores.log_prob)(p), scores.log_prob(p), rtol=1e-9)


def test_samples_have_the_stated_covariance():
    law = Law(LAYER, K)
    p = law.sample_scores(KEY, 1)[0]
    y = np.asarray(Outputs(law, p).sample(KEY, (40_000,)))
    assert mean_agrees(y[:, :, None] * y[:, None], np.asarray(law.Sigma(p)))
    scores = np.asarray(Scores(law).sample(KEY, (20_000,)))[:, 1].reshape(-1, 9)
    assert mean_agrees(scores[:, :, None] * scores[:, None], 1.4**2 * np.kron(K, K))


def test_scores_of_a_singular_kernel_live_on_its_range():
    """K with two equal tokens: the density with respect to the range's own volume, from the nonzero eigenvalues."""
    law = Law(Architecture(), EQUAL)
    p = law.sample_scores(KEY, 3)
    values, vectors = np.linalg.eigh(np.kron(EQUAL, EQUAL))
    positive = values > 1e-10
    assert positive.sum() == 4
    for m in range(3):
        z = vectors[:, positive].T @ np.ravel(p[m])
        expected = stats.norm(scale=np.sqrt(values[positive])).logpdf(z).sum()
        np.testing.assert_allclose(Scores(law).log_prob(p)[m], expected, rtol=1e-6)
    assert np.all(Scores(law).log_prob(p.at[:, 0, 0, 1].add(0.1)) == -np.inf)


def test_outputs_of_equal_tokens_have_a_density_where_they_are_equal():
    law = Law(LAYER, EQUAL)
    basis = output_basis(law)
    assert basis.shape == (3, 2)
    p, y = law.sample_scores(KEY, 4), law.sample(KEY, 4)[:, :, 0]
    found = Outputs(law, p).log_prob(y)
    distinct = np.asarray(law.Sigma(p))[:, :2, :2]
    expected = [stats.multivariate_normal(cov=S).logpdf(x) for S, x in zip(distinct, np.asarray(y)[:, :2], strict=True)]
    np.testing.assert_allclose(found, np.array(expected) - np.log(np.sqrt(2)), rtol=1e-6)  # the diagonal is sqrt(2) longer
    assert np.all(Outputs(law, p).log_prob(y.at[:, 1].add(0.1)) == -np.inf)


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
        (Architecture(heads=2), RANK_ONE, "Sigma of rank 2 that moves with the scores"),
        (Architecture(heads=1, head_dim=2), K, "Sigma of rank 2 that moves with the scores"),
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
    outputs = Outputs(law, law.sample_scores(KEY, 2), law.sample_values(KEY, 2))
    assert np.all(np.isfinite(outputs.sample(KEY)))
    with pytest.raises(InputError, match=words):
        outputs.log_prob(jnp.zeros((2, 3)))


@pytest.mark.parametrize(("kernel", "heads"), [(kernels.rbf(4, 1.5), 1), (kernels.rbf(8, 1.5), 1), (np.eye(8), 1)])
def test_density_in_single_precision(kernel, heads):
    """Nearly singular Sigmas at JAX's default precision: no NaN, and close to double precision."""
    law = Law(Architecture(heads=heads), kernel)
    p, y = law.sample_scores(KEY, 500), law.sample(KEY, 500)[:, :, 0]
    double = np.asarray(Outputs(law, p).log_prob(y))
    single_law = Law(Architecture(heads=heads), kernel.astype(np.float32))
    single = np.asarray(Outputs(single_law, p.astype(np.float32)).log_prob(y.astype(np.float32)))
    assert single.dtype == np.float32
    assert np.all(np.isfinite(single))
    assert np.median(np.abs(single - double)) < 0.05


@pytest.mark.parametrize(("head_dim", "rotary"), [(2, None), (6, None), (6, rotary_frequencies(6))])
def test_finite_head_dim_factors_give_the_same_scores(head_dim, rotary):
    """Scores made of NumPyro's factors against the law's own sampler, 20,000 networks, entry by entry."""
    law = Law(Architecture(heads=2, head_dim=head_dim, rotary=rotary), K)
    normal, key_factor = score_base(law)
    p = law.scores_from(normal.sample(KEY, (20_000,)), key_factor.sample(jax.random.key(1), (20_000,)))
    q = law.sample_scores(jax.random.key(2), 20_000)
    assert all(same_distribution(p[:, 1, i, j], q[:, 1, i, j]) for i in range(3) for j in range(3))
    D = wishart_factor(law).sample(jax.random.key(3), (20_000,))
    assert mean_agrees(np.asarray(D @ D.mT) / head_dim, np.eye(3))


def test_reparametrisation_keeps_the_law():
    def model():
        return numpyro.sample("p", Scores(Law(LAYER, K)))

    sites = trace(seed(reparam(model, {"p": TransformReparam()}), 0)).get_trace()
    base = sites["p_base"]["value"]
    np.testing.assert_allclose(sites["p"]["value"], Law(LAYER, K).scores_from(base), rtol=1e-12)


def test_what_has_no_density_says_so():
    with pytest.raises(InputError, match="head_dim: expected None: scores are Gaussian at infinite head_dim only"):
        Scores(Law(Architecture(head_dim=4), K))
    rotary = Scores(Law(Architecture(rotary=rotary_frequencies(4)), K))
    assert rotary.sample(KEY, (5,)).shape == (5, 1, 3, 3)
    with pytest.raises(InputError, match="p: expected a density of the scores, got rotary embeddings"):
        rotary.log_prob(jnp.zeros((1, 3, 3)))
