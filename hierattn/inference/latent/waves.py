"""Rotary embeddings at infinite head_dim: scores of a head are one Gaussian vector, p = score_scale R e.

    Cov(p_ij, p_kl) = K_ik K_jl rho((j - i) - (l - k)) = (R R')_{ij, kl},    rho(d) = mean_b cos(theta_b d)

Where a constant added to a row changes nothing, rows are centred and R has s fewer columns. Exact (THEORY section 7).
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.inference.latent.latents import Parts
from hierattn.layer import kernels
from hierattn.layer.architecture import Architecture
from hierattn.numerics.random_numbers import normals

MOST_TOKENS = 32  # R has tokens^4 numbers


@dataclass(frozen=True, eq=False)
class Waves:
    """Made for networks of one layer, latents e (H, 1, r, network)."""

    R: Any  # (s^2, r) or (s^2, r, network)
    L_v: Any  # (s, r_v, network or 1)
    heads: int

    def parts(self, data: Any, x: Float[Array, "H 1 r network"]) -> Parts:
        """Scores; values have the kernel's own factor."""
        s = self.L_v.shape[0]
        p = jnp.einsum("prn,hrn->hpn" if self.R.ndim == 3 else "pr,hrn->hpn", self.R, x[:, 0])
        return Parts(p.reshape(self.heads, s, s, -1), self.L_v[None], jnp.zeros(x.shape[-1], x.dtype))

    @property
    def dim(self) -> int:
        """Numbers of a network."""
        return self.heads * self.R.shape[1]

    @property
    def score_dim(self) -> int:
        """Scores are linear in all of them."""
        return self.dim

    @property
    def linear(self) -> bool:
        """They are."""
        return True

    def drawn(self, data: Any, rng_key: Array, networks: int) -> Array:
        """Standard normals."""
        return self.shaped(normals(rng_key, (self.dim, networks), self.L_v.dtype))

    def shaped(self, z: Float[Array, "dim network"]) -> Array:
        """As e."""
        return z.reshape(self.heads, 1, self.R.shape[1], -1)


jax.tree_util.register_dataclass(Waves, data_fields=("R", "L_v"), meta_fields=("heads",))


def waves_of(layer: Architecture, K: Float[np.ndarray, "*network s s"], L_v: Any) -> Waves:
    """For a layer, a kernel or one per network, and its factor with networks last."""
    s, (K_q, K_k) = K.shape[-1], layer.score_kernels(K)
    offset = np.arange(s) - np.arange(s)[:, None]
    rho = np.cos(np.asarray(layer.rotary)[:, None, None] * (offset.ravel()[:, None] - offset.ravel())).mean(axis=0)
    C = np.einsum("...ik,...jl->...ijkl", K_q, K_k).reshape(*K.shape[:-2], s * s, s * s) * rho
    if layer.weighing(s, s).shift_invariant:
        less_mean = np.kron(np.eye(s), np.eye(s) - 1 / s)
        C = less_mean @ C @ less_mean
    R = kernels.factor((C + C.swapaxes(-1, -2)) / 2)
    return Waves(jnp.asarray(R if K.ndim == 2 else np.moveaxis(R, 0, -1)), L_v, layer.heads)
