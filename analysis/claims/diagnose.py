"""The verdict of `diagnose` on outputs whose origin is known, 20 seeds per case: 150 networks, 4 tokens, K = I, one head, 64
coordinates, score_scale 1.6, against a law fixed in advance or with estimated scales. At most one wrong verdict per case;
right is one with the right answer (consistent, not consistent, undecided) and, first among its reasons, the right code."""

from collections import Counter
from functools import cache, partial

import jax
import numpy as np

from hierattn import Architecture, Law, Observations, diagnose, kernels

SEED = 0
SEEDS, NETWORKS, COORDINATES, SCORE_SCALE = 20, 150, 64, 1.6
IDENTITY, SMOOTH = np.eye(4), kernels.rbf(4, 1.0)


def from_law(seed, networks=NETWORKS, heads=1, K=IDENTITY):
    """Outputs of the law."""
    law = Law(Architecture(heads=heads, sigma_q=SCORE_SCALE), K)
    return np.asarray(law.sample(jax.random.key(10_000 + seed), networks, COORDINATES), float)


@cache
def covariance():
    """Of the law over tokens, and its excess kurtosis."""
    law = Law(Architecture(sigma_q=SCORE_SCALE), IDENTITY)
    return law.infinite_heads()[0], law.moments().excess_kurtosis


def gaussian(seed):
    """Outputs without random scores."""
    return np.linalg.cholesky(covariance()[0]) @ np.random.default_rng(seed).normal(size=(NETWORKS, 4, COORDINATES))


def student(seed):
    """Independent heavy-tailed numbers."""
    Sigma, kurtosis = covariance()
    nu = 4 + 6 / kurtosis
    t = np.random.default_rng(seed).standard_t(nu, size=(NETWORKS, 4, COORDINATES)) * np.sqrt((nu - 2) / nu)
    return np.sqrt(Sigma[0, 0]) * t


def own_scores(seed):
    """Every coordinate with scores of its own."""
    law = Law(Architecture(sigma_q=SCORE_SCALE), IDENTITY)
    y = np.asarray(law.sample(jax.random.key(10_000 + seed), NETWORKS * COORDINATES, 1), float)
    return np.moveaxis(y.reshape(NETWORKS, COORDINATES, 4), 1, 2)


def normalised(seed):
    """After an RMSNorm over coordinates."""
    y = from_law(seed)
    return y / np.sqrt((y**2).mean(axis=-1, keepdims=True))


def case(draw, expected, code, K=IDENTITY, heads=1, **given):
    """20 data sets."""
    found = Counter()
    for seed in range(SEEDS):
        diagnosis = diagnose(Observations(draw(seed), kernel=K, heads=heads), seed=seed, **given)
        found[(diagnosis.consistent, diagnosis.codes[0] if diagnosis.codes else None)] += 1
    right = found[(expected, code)]
    return {"passed": right >= SEEDS - 1, "right": right, "verdicts": {f"{a}, {b}": n for (a, b), n in found.items()}}


FIXED = {"score_scale": SCORE_SCALE, "value_scale": 1.0}
CASES = {}
for words, given in {"scales given": FIXED, "scales estimated": {}}.items():
    CASES |= {
        f"law, {words}": partial(case, from_law, True, None, **given),
        f"gaussian, {words}": partial(case, gaussian, False, "gaussian", **given),
        f"iid Student t, {words}": partial(case, student, False, "no_shared_scores", **given),
        f"own scores, {words}": partial(case, own_scores, False, "no_shared_scores", **given),
        f"RMSNorm, {words}": partial(case, normalised, False, "normalised", **given),
        f"256 heads, {words}": partial(case, partial(from_law, heads=256), None, "low_power", heads=256, **given),
        f"5 networks, {words}": partial(case, partial(from_law, networks=5), None, "low_power", **given),
        f"kernel given is smooth, {words}": partial(case, from_law, False, "kernel", SMOOTH, **given),
    }
for factor in (0.7, 1.3):
    CASES |= {
        f"score_scale given x {factor}": partial(
            case, from_law, False, "score_scale", score_scale=SCORE_SCALE * factor, value_scale=1.0
        ),
        f"value_scale given x {factor}": partial(case, from_law, False, "scale", score_scale=SCORE_SCALE, value_scale=factor),
    }
CASES |= {
    "kernel given is equicorrelated": partial(case, from_law, False, "kernel", kernels.equicorrelated(4, 0.3), **FIXED),
    "kernel given is the identity, inputs smooth": partial(case, partial(from_law, K=SMOOTH), False, "kernel", **FIXED),
    "kernel given is the identity, inputs ReLU": partial(
        case, partial(from_law, K=kernels.activation("relu", 4)), False, "kernel", **FIXED
    ),
}
