"""The latent standard normals of networks: E alone, or E beside others."""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Latents = Any  # E, or `Latent`


class Latent(NamedTuple):
    """E, and factors of keys, of values, and of what normed queries have beyond keys (`heads`), networks on the last axis."""

    E: Float[Array, "H r_q m network"]
    B: Float[Array, "G r m network"]
    D: Float[Array, "G r_v m_v network"]
    R: Float[Array, "H r_q l network"] | None = None


class Parts(NamedTuple):
    """What latents give: scores for score_scale 1 (less bias), factors of values, log prior beyond that of standard normals."""

    scores: Float[Array, "H q k network"]
    values: Float[Array, "G k m network_or_1"]
    beyond: Float[Array, " network"]


class Made(Protocol):
    """A way to make scores and values of latents other than p = q L_q E L_k' with K for the values."""

    @property
    def dim(self) -> int:
        """Numbers of a network."""

    @property
    def score_dim(self) -> int:
        """Numbers of E."""

    @property
    def linear(self) -> bool:
        """Are scores linear in E?"""

    def parts(self, data: Any, x: Latents) -> Parts:
        """What latents give."""

    def drawn(self, data: Any, rng_key: Array, networks: int) -> Latents:
        """Latents from their prior."""

    def shaped(self, z: Float[Array, "dim network"]) -> Latents:
        """Standard normals in the shape of latents; zero where there are none."""


def main(x: Latents) -> Array:
    """E."""
    return x.E if isinstance(x, Latent) else x


def with_main(x: Latents, E: Array) -> Latents:
    """The same with another E."""
    return x._replace(E=E) if isinstance(x, Latent) else E


def spread(x: Latents, of_E: Any, of_others: Any) -> Any:
    """A number for E, and one for the others."""
    if not isinstance(x, Latent):
        return of_E
    return Latent(of_E, of_others, of_others, None if x.R is None else of_others)


def squares(x: Latents) -> Float[Array, " network"]:
    """Squared length, network by network."""
    return jnp.sum(jnp.stack([jnp.sum(a**2, axis=tuple(range(a.ndim - 1))) for a in jax.tree.leaves(x)]), axis=0)
