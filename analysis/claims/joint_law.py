"""The joint law of tokens and coordinates, 500,000 networks on each side: the Kronecker sampler against a dense Gaussian of
dimension s^2, and the law at finite head_dim against networks drawn weight by weight, with every variant of the architecture.
A mutant, 3 % off in score_scale or wrong in the one thing a case is about, is rejected."""

from functools import partial

import jax
import numpy as np

from hierattn import Architecture, Law
from tests import explicit
from tests.claims.test_hierarchy import dense_sample
from tests.claims.test_variants import LAYERS, MUTANTS, K
from tests.statistics import same_joint_law

SEED = 0
NETWORKS, BATCH, COORDINATES = 500_000, 50_000, 2


def verdicts(law: Law, mutant: Law, y: np.ndarray) -> dict:
    """Does the law pass and the mutant fail?"""
    rng = np.random.default_rng(SEED)
    same = same_joint_law(law.sample(jax.random.key(SEED), NETWORKS, COORDINATES), y, rng)
    seen = not same_joint_law(mutant.sample(jax.random.key(SEED), NETWORKS, COORDINATES), y, rng)
    return {"passed": bool(same and seen), "law_accepted": bool(same), "mutant_rejected": bool(seen), "networks": NETWORKS}


def dense(heads: int) -> dict:
    """Against the definition."""
    rng = np.random.default_rng(SEED + 1)
    y = [dense_sample(rng, 1.6, heads, K, BATCH, COORDINATES) for _ in range(NETWORKS // BATCH)]
    law, mutant = (Law(Architecture(heads=heads, sigma_q=q), K) for q in (1.6, 1.03 * 1.6))
    return verdicts(law, mutant, np.concatenate(y))


def weights(name: str) -> dict:
    """Against explicit weights."""
    layer, rng = LAYERS[name], np.random.default_rng(SEED + 2)
    X = explicit.inputs(np.linalg.cholesky(K), 6)
    y = [explicit.draw(rng, layer, X, networks=BATCH, coordinates=COORDINATES)[0] for _ in range(NETWORKS // BATCH)]
    wrong = layer.replace(**MUTANTS.get(name, {"sigma_q": 1.03 * layer.sigma_q}))
    return verdicts(Law(layer, K), Law(wrong, K), np.concatenate(y))


CASES = {f"dense Gaussian, {heads} heads": partial(dense, heads) for heads in (1, 2, 8)}
CASES |= {f"explicit weights, {name}": partial(weights, name) for name in LAYERS}
