"""Priors of scales as densities of their logarithms, and the range that matters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hierattn.base.errors import unusable

CHUNK = 2**14  # numbers at once: one shape, one compilation
DROP = 18.0  # of the log density, at the ends of a range
SAMPLES = 1000


def log_density(prior: Any, x: np.ndarray) -> np.ndarray:
    """Log density at x of the logarithm of a scale with this prior, a NumPyro distribution; -inf off its support."""
    flat = np.ravel(x).astype(float)
    filled = np.pad(flat, (0, -len(flat) % CHUNK), mode="edge").reshape(-1, CHUNK)
    with jax.enable_x64(True):
        parts = [_log_density(prior, part) for part in filled]
    return np.concatenate(parts)[: len(flat)].reshape(np.shape(x))


def _log_density(prior: Any, x: np.ndarray) -> np.ndarray:
    scale = jnp.exp(jnp.asarray(x))
    inside = np.asarray(prior.support(scale))
    if not inside.any():
        return np.full(len(x), -np.inf)
    found = np.asarray(prior.log_prob(jnp.where(inside, scale, scale[inside.argmax()]))) + x
    return np.where(inside & ~np.isnan(found), found, -np.inf)


def span(prior: Any, name: str, drop: float = DROP) -> tuple[float, float]:
    """Where the density of the logarithm is within e^-drop of its maximum: by default all but 2e-9 of a log-normal prior."""
    drawn = np.asarray(prior.sample(jax.random.key(0), (SAMPLES,)), float)
    drawn = np.log(drawn[(drawn > 0) & np.isfinite(drawn)])
    if drawn.size < SAMPLES / 10 or np.ptp(drawn) == 0:
        raise unusable(f"prior of {name}", "a distribution of positive numbers with a density", prior)
    reach = 3 * np.ptp(drawn)
    x = np.linspace(drawn.min() - reach, drawn.max() + reach, CHUNK)
    density = log_density(prior, x)
    inside = np.flatnonzero(density > density.max() - drop)
    low, high = max(inside[0] - 1, 0), min(inside[-1] + 1, CHUNK - 1)
    edges = []
    for off, on in ((x[low], x[inside[0]]), (x[high], x[inside[-1]])):
        finer = np.linspace(off, on, CHUNK)  # an edge of the support becomes an end of the range
        edges.append(finer[np.argmax(log_density(prior, finer) > density.max() - drop)])
    return float(edges[0]), float(edges[1])
