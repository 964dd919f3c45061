"""The theorem itself (THEORY section 3), looked at in finite networks.

    (1/n) sum_alpha psi(y_alpha)  ->  E[psi(y) | p]     in distribution over networks, as the width n grows,

for psi = y^2, |y|, 1(|y| > t), cos(t y) of one token and y^i y^j of two; and scores that are independent of the values.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr
from scipy.stats import wasserstein_distance

from hierattn.architecture import Architecture
from hierattn.collapsed import FiniteWidth, gram_factors
from hierattn.inputs import RandomInputs
from hierattn.law import Law
from hierattn.random_numbers import normals
from hierattn.wishart import chi_square


class Psi(NamedTuple):
    """A function of a coordinate over tokens, averaged over coordinates, and its expectation given Sigma."""

    average: Callable[[Float[Array, "network q coordinate"]], Array]
    given: Callable[[Float[np.ndarray, "network q q"]], np.ndarray]


def psis(t: float = 1.0) -> dict[str, Psi]:
    """The functions looked at, of tokens 0 and 1."""
    return {
        "y^2": Psi(lambda y: jnp.mean(y[:, 0] ** 2, axis=-1), lambda S: S[:, 0, 0]),
        "|y|": Psi(lambda y: jnp.mean(jnp.abs(y[:, 0]), axis=-1), lambda S: np.sqrt(2 * S[:, 0, 0] / np.pi)),
        "1(|y|>t)": Psi(lambda y: jnp.mean(jnp.abs(y[:, 0]) > t, axis=-1), lambda S: 2 * ndtr(-t / np.sqrt(S[:, 0, 0]))),
        "cos(ty)": Psi(lambda y: jnp.mean(jnp.cos(t * y[:, 0]), axis=-1), lambda S: np.exp(-(t**2) * S[:, 0, 0] / 2)),
        "y^i y^j": Psi(lambda y: jnp.mean(y[:, 0] * y[:, 1], axis=-1), lambda S: S[:, 0, 1]),
    }


def finite_averages(law: FiniteWidth, networks: int, seed: int = 0, t: float = 1.0) -> dict[str, np.ndarray]:
    """(1/n) sum over all n coordinates of psi, one number a network (of at least two tokens)."""
    reduce = jax.jit(lambda y: {name: psi.average(y) for name, psi in psis(t).items()})
    parts = [reduce(drawn.y) for drawn in law.stream(jax.random.key(seed), networks, law.inputs.width)]
    return {name: np.concatenate([part[name] for part in parts]).astype(float) for name in psis(t)}


def limit_averages(law: Law, networks: int, seed: int = 0, t: float = 1.0) -> dict[str, np.ndarray]:
    """E[psi | p], one number a network."""
    Sigma = np.asarray(law.sample_Sigma(jax.random.key(seed), networks), float)
    return {name: psi.given(Sigma) for name, psi in psis(t).items()}


def distances(finite: dict[str, np.ndarray], limits: list[dict[str, np.ndarray]]) -> dict[str, tuple[float, float]]:
    """For every psi Wasserstein's distance of finite averages from samples of the limit, over its sd; and its floor.

    The floor is the mean distance between two of the samples.
    """
    found = {}
    for name, values in finite.items():
        sd = limits[0][name].std()
        distance = np.mean([wasserstein_distance(values, limit[name]) for limit in limits]) / sd
        pairs = [wasserstein_distance(a[name], b[name]) / sd for a, b in combinations(limits, 2)]
        found[name] = float(distance), float(np.mean(pairs))
    return found


def dependence(
    layer: Architecture, width: int, activation: Any = "clip", networks: int = 200_000, seed: int = 0
) -> tuple[float, float]:
    """Correlation of p_11^2 with the square of the value variable v~^1 of the same head, and its standard error.

    Zero in the limit, where scores and values are independent; at finite width both know the inputs' Gram matrix. Given that,
    and the value matrix, v~ is Gaussian: its square is replaced by its conditional mean.
    """
    n_H, inputs, chunk = float(layer.head_dim or width), RandomInputs(width, 1, activation), 2**16
    q, o = (float(x[0]) for x in (layer.score_scale * layer.at_width(width).score_factor, layer.value_scale))
    parts = []
    for c in range(-(-networks // chunk)):
        key_G, key_heads = jax.random.split(jax.random.fold_in(jax.random.key(seed), c))
        G_11 = jnp.sum(gram_factors(key_G, inputs, (1,), chunk)[0] ** 2, axis=(0, 1))
        parts.append(score_and_value(key_heads, G_11, n_H))
    scores, values = (np.concatenate(x).astype(float)[:networks] for x in zip(*parts, strict=True))
    scores, values = q * scores, o**2 * values
    square, value = scores**2 - (scores**2).mean(), values - values.mean()
    scale = np.sqrt(square.var() * (2 * (values**2).mean() + values.var()))  # Var(v~^2) = 2 E[value^2] + Var(value)
    products = square * value / scale
    return float(products.mean()), float(products.std() / np.sqrt(networks))


@jax.jit
def score_and_value(rng_key: Array, G_11: Float[Array, " network"], n_H: Any) -> tuple[Array, Array]:
    """Score p_11 and conditional variance of v~^1 of one head at scales 1, given the token's norm (THEORY section 5)."""
    key_z, key_c = jax.random.split(rng_key)
    c = chi_square(key_c, jnp.asarray(n_H, G_11.dtype), (2, *G_11.shape)) / n_H
    return G_11 * jnp.sqrt(c[0]) * normals(key_z, G_11.shape, G_11.dtype), G_11 * c[1]
