"""Kernels that are parameters: Cholesky's factors of correlation matrices, in coordinates without bounds.

One kernel K = L L' for scores and values, or one for each; prior LKJ. Data are prepared as if K were the identity: `at` puts
the kernel in.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import handlers  # noqa: F401 - loaded whole first: ArviZ leaves a lazy module behind
from numpyro.distributions import LKJCholesky, biject_to

from hierattn.inference.latent.products import product


class Factors(NamedTuple):
    """Of the kernel of queries, of keys as differences of scores see them (in a basis W), and of values."""

    L: Float[Array, "t t"]
    keys: Float[Array, "r r"]
    values: Float[Array, "t t"]


@dataclass(frozen=True, eq=False)
class Unknown:
    """K for so many tokens with concentration of its prior; separate: are the kernels of scores and of values two?"""

    concentration: Any
    tokens: int
    separate: bool

    @property
    def dim(self) -> int:
        """Coordinates of all kernels."""
        return self.tokens * (self.tokens - 1) // 2 * (1 + self.separate)

    def cholesky(self, theta: Float[Array, " dim"]) -> list[Float[Array, "t t"]]:
        """Factor of the kernel, or of that of scores and that of values."""
        return [biject_to(self._prior.support)(part) for part in jnp.split(theta, 1 + self.separate)]

    def log_prior(self, theta: Float[Array, " dim"]) -> Float[Array, ""]:
        """Of the coordinates."""
        transform = biject_to(self._prior.support)
        parts = [(part, transform(part)) for part in jnp.split(theta, 1 + self.separate)]
        return sum((self._prior.log_prob(L) + transform.log_abs_det_jacobian(x, L) for x, L in parts), jnp.zeros(()))

    def factors(self, data: Any, theta: Float[Array, " dim"]) -> Factors:
        """What scores and values are made with; the columns of W, data.L_k, are orthonormal."""
        L, *values = self.cholesky(theta)
        W_L = data.L_k[..., 0].T @ L
        return Factors(L, jnp.linalg.cholesky(W_L @ W_L.T), values[0] if values else L)

    def at(self, data: Any, theta: Float[Array, " dim"]) -> Any:
        """The data with this kernel known. Rows of E stay in the frames of data.L_q."""
        L_q, L_k, K = self.made(data, theta)
        return replace(data, L_q=L_q, L_k=L_k, K=K, unknown=None)

    def made(self, data: Any, theta: Float[Array, " dim"]) -> tuple[Array, Array, Array]:
        """L_q, L_k and K of the data with this kernel."""
        L, keys, values = self.factors(data, theta)
        return product(L[..., None], data.L_q), (data.L_k[..., 0] @ keys)[..., None], (values @ values.T)[..., None]

    @property
    def _prior(self) -> LKJCholesky:
        return LKJCholesky(self.tokens, self.concentration)


jax.tree_util.register_dataclass(Unknown, data_fields=("concentration",), meta_fields=("tokens", "separate"))
