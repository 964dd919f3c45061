"""Integrated likelihoods by sequential Monte Carlo, where they are known: a Gaussian model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from hierattn.inference.integration import evidence
from tests.inference.mutants import mutant
from tests.statistics import mean_agrees

pytestmark = pytest.mark.usefixtures("float64")
DIM, BATCHES, PARTICLES = 3, 50, 32
Y = np.array([[0.5, 3.0, -6.0, 0.5], [0.0, 1.0, 2.0, 0.0], [1.0, 0.0, -1.0, 1.0]])  # (dim, network)
SD = np.array([2.0, 0.5, 0.2, 2.0])  # of the noise, in networks that are ever harder but for the last
EDGE = 1.0  # the last network has no likelihood where its first latent variable is larger: in 16 % of the prior
EXACT = stats.norm(0, np.sqrt(1 + SD**2)).logpdf(Y).sum(axis=0)
MEAN, VARIANCE = Y / (1 + SD**2), SD**2 / (1 + SD**2)


def density(x):
    """Standard normal x, of which Y is seen with noise."""
    noise = Y - x
    likelihood = jnp.sum(-((noise / SD) ** 2) / 2 - jnp.log(SD) - jnp.log(2 * jnp.pi) / 2, axis=0)
    likelihood = jnp.where((jnp.arange(4) == 3) & (x[0] > EDGE), jnp.nan, likelihood)
    return evidence.Density(-jnp.sum(x**2, axis=0) / 2, likelihood, -x, noise / SD**2)


def annealed(module):
    start = jax.random.normal(jax.random.key(0), (BATCHES, PARTICLES, DIM, 4))
    of_batch = jax.vmap(lambda x, key: module.anneal(density, x, key))
    return jax.jit(of_batch)(start, jax.random.split(jax.random.key(1), BATCHES))


def right(found):
    """Standard errors of the integrated likelihood are 1 to 7 % in 50 batches; posterior moments are tested likewise."""
    inside = np.array([1, 1, 1, stats.norm(MEAN[0, 3], np.sqrt(VARIANCE[3])).cdf(EDGE)])
    x = np.asarray(found.x)[..., :3] - MEAN[:, :3]
    evidences = mean_agrees(np.exp(np.asarray(found.log_evidence) - EXACT), inside)
    return evidences and mean_agrees(x.mean(axis=1), 0.0) and mean_agrees((x**2).mean(axis=1), VARIANCE[:3])


def test_evidence_and_particles_of_a_gaussian_model():
    """Also where some likelihoods cannot be computed: they count as zero, and no particle stays there."""
    found = annealed(evidence)
    assert right(found)
    assert np.all(np.exp(found.log_evidence - EXACT).std(axis=0) < 0.6)  # of one batch
    assert np.all(found.x[:, :, 0, 3] <= EDGE)


FORGOTTEN = "- found.log_prior - beta * found.log_likelihood", "- found.log_prior - found.log_likelihood"
MUTANTS = [
    ("logsumexp(weight, axis=0) - jnp.log(len(value))", "logsumexp(weight, axis=0) - jnp.log(len(value) + 1)"),
    pytest.param(*FORGOTTEN, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("one", "other"), MUTANTS)
def test_a_mistake_is_seen(one, other):
    assert not right(annealed(mutant(evidence, one, other)))


def test_what_was_not_found_is_nan():
    """The first network has no likelihood anywhere, and steps run out before two others are done; the last one is."""

    def hopeless(x):
        found = density(x)
        return found._replace(log_likelihood=found.log_likelihood.at[0].set(jnp.nan))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "MOST_STEPS", 3)
        start = jax.random.normal(jax.random.key(0), (PARTICLES, DIM, 4))
        found = jax.jit(lambda x, key: evidence.anneal(hopeless, x, key))(start, jax.random.key(1))
    assert found.steps == 3
    np.testing.assert_array_equal(np.isnan(found.log_evidence), [True, True, True, False])
