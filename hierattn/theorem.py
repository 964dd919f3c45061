"""The theorem itself (THEORY section 3), looked at in finite networks.

    (1/n) sum_alpha psi(y_alpha)  ->  E[psi(y) | p]     in distribution over networks, as the width n grows,

for psi = y^2, |y|, 1(|y| > t), cos(t y) of one token and y^i y^j of two; and scores that are independent of the values.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr
from scipy.stats import wasserstein_distance

from hierattn.architecture import Architecture
from hierattn.collapsed import FiniteWidth
from hierattn.inputs import RandomInputs
from hierattn.law import Law


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
    """(1/n) sum over all n coordinates of psi, one number a network."""
    reduce = jax.jit(lambda y: {name: psi.average(y) for name, psi in psis(t).items()})
    parts = [reduce(drawn.y) for drawn in law.stream(jax.random.key(seed), networks, law.inputs.width)]
    return {name: np.concatenate([part[name] for part in parts]).astype(float) for name in psis(t)}


def limit_averages(law: Law, networks: int, seed: int = 0, t: float = 1.0) -> dict[str, np.ndarray]:
    """E[psi | p], one number a network."""
    Sigma = np.asarray(law.sample_Sigma(jax.random.key(seed), networks), float)
    return {name: psi.given(Sigma) for name, psi in psis(t).items()}


def distances(
    layer: Architecture, width: int, tokens: int = 4, activation: Any = "clip", networks: int = 20_000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """For every psi Wasserstein's distance between the two, over the limit's standard deviation, and its floor.

    The floor is the mean distance between two samples of the limit, four of them of this size.
    """
    law = FiniteWidth(layer, RandomInputs(width, tokens, activation))
    finite = finite_averages(law, networks, seed)
    limits = [limit_averages(law.limit, networks, seed + 1 + i) for i in range(4)]
    found = {}
    for name, values in finite.items():
        sd = limits[0][name].std()
        distance = np.mean([wasserstein_distance(values, limit[name]) for limit in limits]) / sd
        pairs = [wasserstein_distance(limits[i][name], limits[j][name]) / sd for i in range(4) for j in range(i)]
        found[name] = float(distance), float(np.mean(pairs))
    return found


def dependence(
    layer: Architecture, width: int, tokens: int = 4, activation: Any = "clip", networks: int = 200_000, seed: int = 0
) -> tuple[float, float]:
    """Correlation of p_11^2 with the square of the value variable v~^1 of the same head, and its standard error.

    Zero in the limit, where scores and values are independent; at finite width both know the inputs' Gram matrix. Given that,
    and the value matrix, v~ is Gaussian: its square is replaced by its conditional mean.
    """
    law = FiniteWidth(layer, RandomInputs(width, tokens, activation))

    def parts() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        chunk = 2**14
        for c in range(-(-networks // chunk)):
            score, value = score_and_value(law, jax.random.fold_in(jax.random.key(seed), c), chunk)
            yield np.asarray(score, float), np.asarray(value, float)

    scores, values = (np.concatenate(x)[:networks] for x in zip(*parts(), strict=True))
    square, value = scores**2 - (scores**2).mean(), values - values.mean()
    scale = np.sqrt(square.var() * (2 * (values**2).mean() + values.var()))  # Var(v~^2) = 2 E[value^2] + Var(value)
    products = square * value / scale
    return float(products.mean()), float(products.std() / np.sqrt(networks))


@partial(jax.jit, static_argnames=("law", "networks"))
def score_and_value(law: FiniteWidth, rng_key: Array, networks: int) -> tuple[Array, Array]:
    """Score p_11 and conditional variance of v~^1, both of the first head."""
    key_inputs, key_base, key_values = jax.random.split(rng_key, 3)
    given = law.with_inputs(key_inputs, networks)
    p = given.scores_from(*given.sample_base(key_base, networks))[:, 0, 0, 0]
    D = given.sample_values(key_values, networks)
    if D is None or law.layer.head_dim is None:
        raise AssertionError("a finite width has a finite head_dim")
    value = jnp.sum((given.L_k[:, None, :1] @ D)[:, 0, 0] ** 2, axis=-1) / law.layer.head_dim
    return p, jnp.asarray(law.layer.value_scale)[0] ** 2 * value
