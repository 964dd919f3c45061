"""The two levels of the law of an attention layer: scores p of a network, and the covariance Sigma(p) of its outputs.

    p^(a) = sigma_Q sigma_K L E_a L'                        scores, p ~ N(0, kappa'), one set for a whole network
    y^i   = H^{-1/2} sum_a sum_j A_a[i, j] v~^{a,j}         outputs, coordinates i.i.d. given p
    Sigma = H^{-1} sum_a (sigma_V sigma_O)^2 A_a K A_a'     so that y | p ~ N(0, Sigma(p))

(paper, Example 3.1; THEORY section 2). With a finite head_dim n_H the same hierarchy has Wishart matrices of n_H degrees
of freedom in place of their limits, also exactly (THEORY section 6): p^(a) = sigma_Q sigma_K L E_a (L B_a)' / sqrt(n_H) and
K -> L D_a D_a' L' / n_H in Sigma, with B_a B_a', D_a D_a' ~ Wishart.
"""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from hierattn.base.errors import unusable
from hierattn.layer.architecture import Architecture
from hierattn.layer.positions import rotate
from hierattn.numerics.random_numbers import normals, two_keys
from hierattn.numerics.wishart import bartlett

Scores = Float[Array, "*batch H q k"]
GivenScores = Num[Array | np.ndarray, "*batch H q k"]


@jax.tree_util.register_pytree_node_class
class Hierarchy:
    """Scores and covariances of `layer` for inputs with kernels L L': L_k of keys and values, L_q of queries.

    Factors may have leading axes, one kernel for each network. A hierarchy is a pytree: jit, vmap and grad go through it.
    Nothing is checked here: `Law` is for users.
    """

    layer: Architecture
    L_k: Any
    L_q: Any

    @classmethod
    def from_factors(cls, layer: Architecture, L_k: Any, L_q: Any = None) -> Self:
        """The law for K = L L' with L at hand, unchecked: what a model uses when L itself is random."""
        return cls.tree_unflatten(None, (layer, L_k, L_k if L_q is None else L_q))

    def tree_flatten(self) -> tuple[tuple, None]:
        """A law is a pytree: jit, vmap and grad go through it."""
        return (self.layer, self.L_k, self.L_q), None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: tuple) -> Self:
        """The inverse of tree_flatten, without checks."""
        self = object.__new__(cls)
        self.layer, self.L_k, self.L_q = leaves
        return self

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, keys)."""
        return self.L_q.shape[-2], self.L_k.shape[-2]

    @property
    def K(self) -> Float[Array, "*batch k k"]:
        """Kernel of the keys' and values' inputs."""
        return jnp.asarray(self.L_k @ self.L_k.swapaxes(-1, -2))

    @property
    def query_kernel(self) -> Float[Array, "*batch q q"]:
        """Kernel of the queries' inputs (K itself in self-attention)."""
        return jnp.asarray(self.L_q @ self.L_q.swapaxes(-1, -2))

    @property
    def kappa(self) -> Float[Array, "*batch H k k"]:
        """Covariance of the value variables v~^a of every head: (sigma_V sigma_O)^2 K; heads are independent."""
        return jnp.asarray(self.layer.value_scale)[:, None, None] ** 2 * self.K[..., None, :, :]

    def kappa_prime(self, p: GivenScores) -> Scores:
        """The scores' covariance applied to p: sum_kl Cov(p_ij, p_kl) p_kl, head by head.

        Cov(p_ij, p_kl) = (sigma_Q sigma_K)^2 K_ik K_jl rho((j - i) - (l - k)), rho = 1 without rotary embeddings. The same
        for every head_dim; zero in the infinite-width limit of linear scaling.
        """
        p = self.checked(p)
        image = p[..., None, :, :]
        if self.layer.rotary is not None:
            image = self._waves(p.dtype) * image
        image = self.query_kernel[..., None, None, :, :] @ image @ self.K[..., None, None, :, :]
        if self.layer.rotary is not None:
            image = self._waves(p.dtype) * image
        return self.scale_of_scores(p.dtype) ** 2 * jnp.sum(image, axis=-3)

    def Sigma(self, p: GivenScores, D: Float[Array | np.ndarray, "*batch G r m"] | None = None) -> Float[Array, "*batch q q"]:
        """Covariance over tokens of one output coordinate given the scores (and, at finite head_dim, the value factors D)."""
        F = self.factor(p, D)
        return F @ F.swapaxes(-1, -2)

    def expected_Sigma(self, p: GivenScores) -> Float[Array, "*batch q q"]:
        """E[Sigma | p] = H^{-1} sum_a (sigma_V sigma_O)^2 A_a K A_a': Sigma itself at infinite head_dim."""
        return self.with_infinite_head_dim().Sigma(p)

    def with_infinite_head_dim(self) -> Self:
        """The same law at infinite head_dim, where sharing keys and values changes nothing."""
        return self.from_factors(self.layer.replace(head_dim=None, key_value_heads=None), self.L_k, self.L_q)

    def factor(self, p: GivenScores, D: Float[Array | np.ndarray, "*batch G r m"] | None = None) -> Float[Array, "*batch q Hr"]:
        """F with Sigma = F F': the heads' o_a A_a L (D_a / sqrt(n_H)) / sqrt(H) side by side. Exact for singular Sigma too."""
        if (D is None) != (self.layer.head_dim is None):
            expected = "no value factors at infinite head_dim" if D is not None else "value factors at finite head_dim"
            raise unusable("D", expected, "None" if D is None else f"shape {D.shape}", "draw them with sample_values")
        p = self.checked(p)
        A = self.layer.attention(p)
        values = jnp.asarray(self.L_k, p.dtype)[..., None, :, :]
        if D is not None and self.layer.head_dim is not None:
            values = jnp.repeat(values @ D, self.layer.group_size, axis=-3) * self.layer.head_dim**-0.5
        scale = jnp.asarray(self.layer.value_scale, p.dtype)[:, None, None] * self.layer.heads**-0.5
        F = scale * (A @ values)
        return F.swapaxes(-3, -2).reshape(*F.shape[:-3], F.shape[-2], -1)

    def scores_from(self, E: Float[Array, "..."], B: Float[Array, "*batch G r m"] | None = None) -> Scores:
        """The scores made of standard variables: E, and at finite head_dim the factors B (see `sample_base`)."""
        layer, dtype = self.layer, E.dtype
        L_q, L_k = (jnp.asarray(L, dtype)[..., None, :, :] for L in (self.L_q, self.L_k))
        if B is not None and layer.head_dim is not None:
            queries, keys = L_q @ E, jnp.repeat(L_k @ B, layer.group_size, axis=-3)
            if layer.rotary is not None:
                queries, keys = rotate(queries, layer.rotary), rotate(keys, layer.rotary)
            p = queries @ keys.mT * layer.head_dim**-0.5
        elif layer.rotary is not None:
            p = jnp.sum(self._waves(dtype) * (L_q[..., None, :, :] @ E @ L_k[..., None, :, :].mT), axis=-3)
        else:
            p = L_q @ E @ L_k.mT
        return self.scale_of_scores(dtype) * p

    def base_shapes(self, whole: bool = False) -> list[tuple[int, ...]]:
        """Shapes of the standard variables of one network's scores: E, and at finite head_dim B (see `sample_base`).

        whole: at finite head_dim keys have all n_H coordinates, as with rotary embeddings, and B is normal.
        """
        layer, r_q, r_k, n_H = self.layer, self.L_q.shape[-1], self.L_k.shape[-1], self.layer.head_dim
        if n_H is None:
            waves = () if layer.rotary is None else (2 * layer.rotary.shape[0],)
            return [(layer.heads, *waves, r_q, r_k)]
        m = n_H if whole or layer.rotary is not None else min(r_k, n_H)
        return [(layer.heads, r_q, m), (layer.groups, r_k, m)]

    def sample_base(self, rng_key: Array, networks: int) -> tuple[Array, Array | None]:
        """Standard variables (E, B) of the scores, network axis first.

        Infinite head_dim: E normal (H, r_q, r_k), with a further axis of two waves for each rotary frequency. Finite: the keys
        enter through Bartlett factors B (shared by a group), E (H, r_q, m); rotary ones need every head coordinate.
        """
        (shape_E, *shape_B), n_H = self.base_shapes(), self.layer.head_dim
        if n_H is None:
            return normals(rng_key, (networks, *shape_E), self.dtype), None
        (key_E, key_B), (groups, r_k, _) = two_keys(rng_key), shape_B[0]
        E = normals(key_E, (networks, *shape_E), self.dtype)
        if self.layer.rotary is None:
            return E, bartlett(key_B, n_H, r_k, (networks, groups), self.dtype)
        return E, normals(key_B, (networks, *shape_B[0]), self.dtype)

    def sample_values(self, rng_key: Array, networks: int) -> Float[Array, "network G r m"] | None:
        """Value factors D, one per group of heads: D D' ~ Wishart_{n_H}(I). None at infinite head_dim."""
        if self.layer.head_dim is None:
            return None
        return bartlett(rng_key, self.layer.head_dim, self.L_k.shape[-1], (networks, self.layer.groups), self.dtype)

    def linear_scaling(self) -> Float[Array, "q q"]:
        """Covariance over tokens of the Gaussian limit when scores are divided by n (Yang 2019): Sigma at p = 0."""
        return self.expected_Sigma(jnp.zeros((self.layer.heads, *self.shape), self.dtype))

    @property
    def dtype(self) -> Any:
        """What the law computes in: the kernel's dtype as far as JAX's x64 setting admits it."""
        return jnp.result_type(jax.dtypes.canonicalize_dtype(self.L_k.dtype))

    def scale_of_scores(self, dtype: Any) -> Float[Array, "H 1 1"]:
        """Standard deviation of the scores at unit kernels, head by head."""
        return jnp.asarray(self.layer.score_scale * self.layer.score_factor, dtype)[:, None, None]

    def _waves(self, dtype: Any) -> Float[Array, "W q k"]:
        """Cos and sin of theta_b (j - i), divided by sqrt(B)."""
        s_q, s_k = self.shape
        angle = jnp.asarray(self.layer.rotary, dtype)[:, None, None] * (jnp.arange(s_k) - jnp.arange(s_q)[:, None])
        return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)]) * self.layer.rotary.shape[0] ** -0.5

    def checked(self, p: Any) -> Array:
        """Scores as floating-point numbers of the right shape."""
        p = jnp.asarray(p)
        if p.shape[-3:] != (self.layer.heads, *self.shape):
            raise unusable("p", f"shape (..., {self.layer.heads}, {self.shape[0]}, {self.shape[1]})", p.shape)
        return p if jnp.issubdtype(p.dtype, jnp.floating) else p.astype(self.dtype)
