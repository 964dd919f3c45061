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

from hierattn.finite.collapsed import FiniteWidth, gram_recipe
from hierattn.finite.inputs import RandomInputs
from hierattn.law.law import Law
from hierattn.law.sampling import Recipe, follow
from hierattn.layer.architecture import Architecture
from hierattn.numerics.random_numbers import normals
from hierattn.numerics.wishart import chi_square

CHUNK = 2**16  # networks drawn at once


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
        distance = np.mean([wasserstein(values, limit[name]) for limit in limits]) / sd
        pairs = [wasserstein(a[name], b[name]) / sd for a, b in combinations(limits, 2)]
        found[name] = float(distance), float(np.mean(pairs))
    return found


def wasserstein(x: np.ndarray, y: np.ndarray) -> float:
    """Wasserstein's distance of two samples, the area between their distribution functions (as scipy.stats has it)."""
    steps = np.sort(np.concatenate([x, y]))
    F, G = (np.searchsorted(np.sort(sample), steps[:-1], side="right") / len(sample) for sample in (x, y))
    return float(np.abs(F - G) @ np.diff(steps))


def dependence(
    layer: Architecture, width: int, activation: Any = "clip", networks: int = 200_000, seed: int = 0
) -> tuple[float, float]:
    """Correlation of p_11^2 with the square of the value variable v~^1 of the same head, and its standard error.

    Zero in the limit, where scores and values are independent; at finite width both know the inputs' Gram matrix. Given that,
    and the value matrix, v~ is Gaussian: its square is replaced by its conditional mean.
    """
    scores, values = scores_and_values(layer, width, activation, networks, seed)
    square, value = scores**2 - (scores**2).mean(), values - values.mean()
    scale = np.sqrt(square.var() * (2 * (values**2).mean() + values.var()))  # Var(v~^2) = 2 E[value^2] + Var(value)
    products = square * value / scale
    return float(products.mean()), float(products.std() / np.sqrt(networks))


def scores_and_values(
    layer: Architecture, width: int, activation: Any = "clip", networks: int = 200_000, seed: int = 0
) -> tuple[Float[np.ndarray, " network"], Float[np.ndarray, " network"]]:
    """Scores p_11 of the first head, and conditional variances of its v~^1 given the inputs and the value matrix."""
    gram = gram_recipe(RandomInputs(width, 1, activation), (1,), CHUNK)
    n_H = float(layer.head_dim or width)
    recipe = Recipe(_score_and_value, (gram.draw, gram.fixed, n_H >= 2), (n_H, *gram.numbers))
    keys = (jax.random.fold_in(jax.random.key(seed), c) for c in range(-(-networks // CHUNK)))
    parts = [follow(key, CHUNK, *recipe) for key in keys]
    p, v = (np.concatenate(x).astype(float)[:networks] for x in zip(*parts, strict=True))
    q, o = (float(x[0]) for x in (layer.score_scale * layer.at_width(width).score_factor, layer.value_scale))
    return q * p, o**2 * v


def _score_and_value(
    rng_key: Array, networks: int, draw_gram: Any, gram_fixed: tuple, two: bool, n_H: Any, *gram_numbers: Any
) -> tuple[Array, Array]:
    """As `scores_and_values` at scales 1, for one chunk: the token's norm, then its head given that (THEORY section 5)."""
    key_G, key_heads = jax.random.split(rng_key)
    key_z, key_c = jax.random.split(key_heads)
    G_11 = jnp.sum(draw_gram(key_G, networks, *gram_fixed, *gram_numbers)[0] ** 2, axis=(0, 1))
    c = chi_square(key_c, jnp.asarray(n_H, G_11.dtype), (2, networks), two) / n_H
    return G_11 * jnp.sqrt(c[0]) * normals(key_z, G_11.shape, G_11.dtype), G_11 * c[1]
