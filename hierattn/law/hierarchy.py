"""The two levels of the law of an attention layer: scores p of a network, and the covariance Sigma(p) of its outputs.

    p^(a) = sigma_Q sigma_K L E_a L'                        scores, p ~ N(0, kappa'), one set for a whole network
    y^i   = H^{-1/2} sum_a sum_j A_a[i, j] v~^{a,j}         outputs, coordinates i.i.d. given p
    Sigma = H^{-1} sum_a (sigma_V sigma_O)^2 A_a K A_a'     so that y | p ~ N(0, Sigma(p))

(paper, Example 3.1; THEORY section 2). With a finite head_dim n_H the same hierarchy has Wishart matrices of n_H degrees
of freedom in place of their limits, also exactly (THEORY section 6): p^(a) = sigma_Q sigma_K L E_a (L B_a)' / sqrt(n_H) and
K -> L D_a D_a' L' / n_H in Sigma, with B_a B_a', D_a D_a' ~ Wishart.

Normed queries and keys have the correlation matrix of K in place of K in their scores, and a gain in place of sigma_Q sigma_K.
At finite head_dim they are divided by their lengths: what queries have beyond the frame of the keys enters these alone, by a
Wishart matrix R_a R_a' of the n_H - m degrees of freedom that are left (THEORY section 14).
"""

from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from hierattn.base.errors import unusable
from hierattn.layer.architecture import Architecture
from hierattn.layer.positions import rotate
from hierattn.numerics.random_numbers import normals, two_keys
from hierattn.numerics.wishart import bartlett


class Base(NamedTuple):
    """Standard variables of scores, or their shapes; None for those that a layer does not have.

    - E: of queries (at infinite head_dim of whole scores)
    - B: of keys, a set for each group of heads, and R: of what queries have beyond the frame of keys, at finite head_dim
    - t: of sinks that vary between networks
    """

    E: Any
    B: Any = None
    R: Any = None
    t: Any = None


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

    def score_factors(self) -> tuple[Any, Any]:
        """Factors of the kernels of queries and keys as scores see them: L_q and L_k, their rows of length one if normed.

        Where eps > 0 that is K_ii / (K_ii + eps / sigma^2), and in the limit of an infinite head_dim only.
        """
        layer = self.layer
        if layer.qk_norm is None:
            return self.L_q, self.L_k
        each = (self.L_q, layer.sigma_q), (self.L_k, layer.sigma_k)
        L_q, L_k = (_normed(L, (L**2).sum(axis=-1, keepdims=True), self._eps(sigma)) for L, sigma in each)
        return L_q, L_k

    def _eps(self, sigma: Any) -> Any:
        """Of a norm of variables to which a weight scale was not applied yet: one for all heads, unless it is zero."""
        return self.layer.qk_eps / (sigma if np.ndim(sigma) == 0 else sigma[0]) ** 2

    def kappa_prime(self, p: GivenScores) -> Scores:
        """The scores' covariance applied to p: sum_kl Cov(p_ij, p_kl) p_kl, head by head.

        Cov(p_ij, p_kl) = (sigma_Q sigma_K)^2 K_ik K_jl rho((j - i) - (l - k)), rho = 1 without rotary embeddings. The same
        for every head_dim, unless queries and keys are normed; zero in the infinite-width limit of linear scaling. Sinks that
        vary add their variance to all of a head's scores.
        """
        p, layer = self.checked(p), self.layer
        if layer.qk_norm is not None and layer.head_dim is not None:
            raise unusable("qk_norm", "an infinite head_dim", layer.head_dim, "use with_infinite_head_dim()")
        query_kernel, K = (jnp.asarray(L @ L.swapaxes(-1, -2))[..., None, None, :, :] for L in self.score_factors())
        image = p[..., None, :, :]
        if layer.rotary is not None:
            image = self._waves(p.dtype) * image
        image = query_kernel @ image @ K
        if layer.rotary is not None:
            image = self._waves(p.dtype) * image
        image = self.scale_of_scores(p.dtype) ** 2 * jnp.sum(image, axis=-3)
        if layer.sink_scale is None:
            return image
        return image + _column(layer.sink_scale, p.dtype) ** 2 * p.sum(axis=(-2, -1), keepdims=True)

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

    def scores_from(
        self,
        E: Float[Array, "..."],
        B: Float[Array, "*batch G r m"] | None = None,
        R: Float[Array, "*batch H r_q l"] | None = None,
        t: Float[Array, "*batch H 1 1"] | None = None,
    ) -> Scores:
        """The scores made of standard variables (see `Base`); less their head's sink where those vary."""
        p = self.scale_of_scores(E.dtype) * (self._products(E) if B is None else self._inner_products(E, B, R))
        return p if t is None else p - _column(self.layer.sink_scale, p.dtype) * t

    def _products(self, E: Array) -> Array:
        """L E L' at infinite head_dim."""
        L_q, L_k = (jnp.asarray(L, E.dtype)[..., None, :, :] for L in self.score_factors())
        if self.layer.rotary is None:
            return L_q @ E @ L_k.mT
        return jnp.sum(self._waves(E.dtype) * (L_q[..., None, :, :] @ E @ L_k[..., None, :, :].mT), axis=-3)

    def _inner_products(self, E: Array, B: Array, R: Array | None) -> Array:
        """Of queries and keys of n_H coordinates."""
        layer, n_H = self.layer, self.head_dim
        L_q, L_k = (jnp.asarray(L, E.dtype)[..., None, :, :] for L in (self.L_q, self.L_k))
        queries, keys = L_q @ E, L_k @ B
        if layer.qk_norm is not None:
            centred = layer.qk_norm == "layer" and E.shape[-1] == n_H  # else one dimension was left out when they were drawn
            queries, keys = (x - x.mean(axis=-1, keepdims=True) if centred else x for x in (queries, keys))
            beyond = 0 if R is None else jnp.sum((L_q @ R) ** 2, axis=-1, keepdims=True)
            queries = self._of_length_one(queries, beyond, layer.sigma_q)
            keys = self._of_length_one(keys, 0, layer.sigma_k)
        keys = jnp.repeat(keys, layer.group_size, axis=-3)
        if layer.rotary is not None:
            queries, keys = rotate(queries, layer.rotary), rotate(keys, layer.rotary)
        return queries @ keys.mT * n_H**-0.5

    def _of_length_one(self, x: Float[Array, "*batch H s m"], beyond: Any, sigma: Any) -> Array:
        """Divided by the root mean square of their coordinates, some of which enter through their squares."""
        square = (jnp.sum(x**2, axis=-1, keepdims=True) + beyond) / self.head_dim
        if self.layer.qk_norm == "rms_all":
            square = jnp.mean(square, axis=-3, keepdims=True)
        return _normed(x, square, self._eps(sigma))

    def base_shapes(self) -> Base:
        """Shapes of the standard variables of one network's scores."""
        layer, r_q, r_k, n_H = self.layer, self.L_q.shape[-1], self.L_k.shape[-1], self.layer.head_dim
        t = None if layer.sink_scale is None else (layer.heads, 1, 1)
        if n_H is None:
            waves = () if layer.rotary is None else (2 * layer.rotary.shape[0],)
            return Base((layer.heads, *waves, r_q, r_k), t=t)
        if layer.rotary is not None:
            return Base((layer.heads, r_q, n_H), (layer.groups, r_k, n_H), t=t)
        m, left = min(r_k, self.freedom), max(self.freedom - r_k, 0)
        R = (layer.heads, r_q, min(r_q, left)) if layer.qk_norm is not None and left else None
        return Base((layer.heads, r_q, m), (layer.groups, r_k, m), R, t)

    @property
    def head_dim(self) -> int:
        """A finite one."""
        assert self.layer.head_dim is not None
        return self.layer.head_dim

    @property
    def freedom(self) -> int:
        """Coordinates of a head that queries and keys may take: one less without their mean."""
        return self.head_dim - (self.layer.qk_norm == "layer")

    def sample_base(self, rng_key: Array, networks: int) -> Base:
        """Standard variables of the scores, network axis first.

        Infinite head_dim: E normal (H, r_q, r_k), with a further axis of two waves for each rotary frequency. Finite: the keys
        enter through Bartlett factors B (shared by a group), E (H, r_q, m); rotary ones need every head coordinate.
        """
        shapes, n_H = self.base_shapes(), self.layer.head_dim
        t = None if shapes.t is None else normals(jax.random.fold_in(rng_key, 2), (networks, *shapes.t), self.dtype)
        if n_H is None:
            return Base(normals(rng_key, (networks, *shapes.E), self.dtype), t=t)
        (key_E, key_B), (groups, r_k, m), R = two_keys(rng_key), shapes.B, None
        E = normals(key_E, (networks, *shapes.E), self.dtype)
        if self.layer.rotary is not None:
            return Base(E, normals(key_B, (networks, *shapes.B), self.dtype), t=t)
        if shapes.R is not None:
            heads, r_q, _ = shapes.R
            R = bartlett(jax.random.fold_in(rng_key, 3), self.freedom - m, r_q, (networks, heads), self.dtype)
        return Base(E, bartlett(key_B, self.freedom, r_k, (networks, groups), self.dtype), R, t)

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
        return _column(self.layer.score_scale * self.layer.score_factor, dtype)

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


def _column(x: Any, dtype: Any) -> Float[Array, "H 1 1"]:
    """A number, or one for each head, beside scores (head, query, key)."""
    return jnp.reshape(jnp.asarray(x, dtype), (-1, 1, 1))


def _normed(x: Any, square: Any, eps: Any) -> Any:
    """Rows divided by the root of their mean square and eps."""
    return x / (square + eps) ** 0.5
