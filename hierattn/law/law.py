"""The infinite-width law of an attention layer: (architecture, K) -> scores p, covariance Sigma(p), outputs y.

    p^(a) = sigma_Q sigma_K L E_a L'                        scores, p ~ N(0, kappa'), one set for a whole network
    y^i   = H^{-1/2} sum_a sum_j A_a[i, j] v~^{a,j}         outputs, coordinates i.i.d. given p
    Sigma = H^{-1} sum_a (sigma_V sigma_O)^2 A_a K A_a'     so that y | p ~ N(0, Sigma(p))

(paper, Example 3.1; THEORY section 2). With a finite head_dim n_H the same hierarchy has Wishart matrices of n_H degrees
of freedom in place of their limits, also exactly (THEORY section 6): p^(a) = sigma_Q sigma_K L E_a (L B_a)' / sqrt(n_H) and
K -> L D_a D_a' L' / n_H in Sigma, with B_a B_a', D_a D_a' ~ Wishart.
"""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from hierattn.base.errors import unusable
from hierattn.law import sampling
from hierattn.layer import kernels
from hierattn.layer.architecture import Architecture
from hierattn.layer.positions import rotate
from hierattn.numerics.random_numbers import normals
from hierattn.numerics.wishart import bartlett

if TYPE_CHECKING:
    from hierattn.law.joint_moments import JointMoments
    from hierattn.law.marginal import Marginal
    from hierattn.law.moments import Moments

Scores = Float[Array, "*batch H q k"]
GivenScores = Num[Array | np.ndarray, "*batch H q k"]


@jax.tree_util.register_pytree_node_class
class Law(sampling.Sampled):
    """The law of the outputs of `layer` for inputs with kernel K.

    K             (s, s), kernel of the inputs; with cross-attention that of keys and values
    query_kernel  (s_q, s_q), kernel of the queries' inputs where they differ (cross-attention)

    One network is one draw of the scores: `sample` draws networks, and for each its coordinates. The first networks are
    the same however many are asked for. dtype follows K and JAX's x64 setting.
    """

    def __init__(self, layer: Architecture, K: Any, query_kernel: Any = None) -> None:
        K = kernels.check(K)
        if K.ndim != 2:
            raise unusable("K", "one kernel (tokens, tokens)", f"shape {K.shape}", "for one a network use Law.from_factors")
        K_q = K if query_kernel is None else kernels.check(query_kernel, "query_kernel").astype(K.dtype)
        s_q, s_k = K_q.shape[-1], K.shape[-1]
        layer.allowed(s_q, s_k)
        if layer.bias is not None and layer.bias.shape[-2:] != (s_q, s_k):
            raise unusable("bias", f"shape {(s_q, s_k)} (queries, keys) or one per head", layer.bias.shape)
        L_k = kernels.factor(K)
        self.layer, self.L_k, self.L_q = layer, L_k, L_k if query_kernel is None else kernels.factor(K_q)

    @classmethod
    def from_factors(cls, layer: Architecture, L_k: Any, L_q: Any = None) -> "Law":
        """The law for K = L L' with L at hand, unchecked: what a model uses when L itself is random."""
        return cls.tree_unflatten(None, (layer, L_k, L_k if L_q is None else L_q))

    def tree_flatten(self) -> tuple[tuple, None]:
        """A law is a pytree: jit, vmap and grad go through it."""
        return (self.layer, self.L_k, self.L_q), None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: tuple) -> "Law":
        """The inverse of tree_flatten, without checks."""
        self = object.__new__(cls)
        self.layer, self.L_k, self.L_q = leaves
        return self

    def __repr__(self) -> str:
        H, (s_q, s_k) = self.layer.heads, self.shape
        head_dim = "infinite" if self.layer.head_dim is None else self.layer.head_dim
        return f"Law(heads={H}, head_dim={head_dim}, queries={s_q}, keys={s_k}, scaling={self.layer.scaling!r})"

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
        p = self._checked(p)
        image = p[..., None, :, :]
        if self.layer.rotary is not None:
            image = self._waves(p.dtype) * image
        image = self.query_kernel[..., None, None, :, :] @ image @ self.K[..., None, None, :, :]
        if self.layer.rotary is not None:
            image = self._waves(p.dtype) * image
        return self._score_scale(p.dtype) ** 2 * jnp.sum(image, axis=-3)

    def Sigma(self, p: GivenScores, D: Float[Array | np.ndarray, "*batch G r m"] | None = None) -> Float[Array, "*batch q q"]:
        """Covariance over tokens of one output coordinate given the scores (and, at finite head_dim, the value factors D)."""
        F = self.factor(p, D)
        return F @ F.swapaxes(-1, -2)

    def expected_Sigma(self, p: GivenScores) -> Float[Array, "*batch q q"]:
        """E[Sigma | p] = H^{-1} sum_a (sigma_V sigma_O)^2 A_a K A_a': Sigma itself at infinite head_dim."""
        return self.with_infinite_head_dim().Sigma(p)

    def with_infinite_head_dim(self) -> "Law":
        """The same law at infinite head_dim, where sharing keys and values changes nothing."""
        return Law.from_factors(self.layer.replace(head_dim=None, key_value_heads=None), self.L_k, self.L_q)

    def factor(self, p: GivenScores, D: Float[Array | np.ndarray, "*batch G r m"] | None = None) -> Float[Array, "*batch q Hr"]:
        """F with Sigma = F F': the heads' o_a A_a L (D_a / sqrt(n_H)) / sqrt(H) side by side. Exact for singular Sigma too."""
        if (D is None) != (self.layer.head_dim is None):
            expected = "no value factors at infinite head_dim" if D is not None else "value factors at finite head_dim"
            raise unusable("D", expected, "None" if D is None else f"shape {D.shape}", "draw them with sample_values")
        p = self._checked(p)
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
        return self._score_scale(dtype) * p

    def sample_base(self, rng_key: Array, networks: int) -> tuple[Array, Array | None]:
        """Standard variables (E, B) of the scores, network axis first.

        Infinite head_dim: E normal (H, r_q, r_k), with a further axis of 2 waves a rotary frequency. Finite: the keys enter
        through Bartlett factors B (shared by a group), E (H, r_q, m); rotary ones need every head coordinate.
        """
        layer, r_q, r_k, n_H = self.layer, self.L_q.shape[-1], self.L_k.shape[-1], self.layer.head_dim
        if n_H is None:
            waves = () if layer.rotary is None else (2 * layer.rotary.shape[0],)
            return normals(rng_key, (networks, layer.heads, *waves, r_q, r_k), self.dtype), None
        key_E, key_B = jax.random.split(rng_key)
        m = min(r_k, n_H) if layer.rotary is None else n_H
        E = normals(key_E, (networks, layer.heads, r_q, m), self.dtype)
        if layer.rotary is None:
            return E, bartlett(key_B, n_H, r_k, (networks, layer.groups), self.dtype)
        return E, normals(key_B, (networks, layer.groups, r_k, n_H), self.dtype)

    def sample_values(self, rng_key: Array, networks: int) -> Float[Array, "network G r m"] | None:
        """Value factors D, one per group of heads: D D' ~ Wishart_{n_H}(I). None at infinite head_dim."""
        if self.layer.head_dim is None:
            return None
        return bartlett(rng_key, self.layer.head_dim, self.L_k.shape[-1], (networks, self.layer.groups), self.dtype)

    def with_inputs(self, rng_key: Array, networks: int) -> "Law":
        """The law given the inputs of these networks: they are fixed, so it is the law itself."""
        return self

    def variances_of(self, token: int, keys: np.ndarray, heads: Any, networks: int) -> sampling.Recipe:
        """The recipe for conditional variances of one token that sees these keys."""
        from hierattn.law import one_token  # builds on this file

        L_q, L_k = self.L_q[token].astype(self.dtype), self.L_k[keys].astype(self.dtype)
        return one_token.given_factors(heads, (L_q**2).sum(), L_k[..., None], self.layer.score_function == "identity")

    def sample_given(self, rng_key: Array, p: Any, coordinates: int = 1) -> Float[Array, "network q coordinate"]:
        """Outputs of networks whose scores p (network, head, query, key) are given; with `sample_scores`, `sample` itself."""
        p = self._checked(p).astype(self.dtype)
        if p.ndim != 4:
            raise unusable("p", "scores (network, head, query, key)", f"shape {p.shape}")
        sampling.check_draws(self.dtype, rng_key, self.shape[0], networks=p.shape[0], coordinates=coordinates)
        return jnp.concatenate([drawn.y for drawn in sampling.draw_networks(self, rng_key, len(p), coordinates, p)])

    def moments(self, token: int = 0, seed: int = 0) -> "Moments":
        """Variance and excess kurtosis of one token's outputs, each with its error."""
        from hierattn.law import moments  # builds on this file

        return moments.of_token(self, token, seed)

    def marginal(self, token: int = 0, accuracy: float = 1e-7, seed: int = 0) -> "Marginal":
        """The distribution of one token's outputs: pdf, cdf, sf, ppf, ... with errors; pdf to accuracy x its peak."""
        from hierattn.law import token_law  # builds on this file

        return token_law.of_token(self, token, accuracy, seed)

    def joint_moments(self, tokens: list[int] | None = None, seed: int = 0) -> "JointMoments":
        """Mean and covariance of Sigma over (some) tokens, hence second and fourth moments of the outputs, with errors."""
        from hierattn.law import joint_moments  # builds on this file

        return joint_moments.of_tokens(self, tokens, seed)

    def infinite_heads(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Covariance over tokens, with its error, of the Gaussian limit of infinitely many heads (Hron et al. 2020)."""
        from hierattn.law import joint_moments  # builds on this file

        return joint_moments.mean_of_tokens(self.with_infinite_head_dim(), seed)

    def linear_scaling(self) -> Float[Array, "q q"]:
        """Covariance over tokens of the Gaussian limit when scores are divided by n (Yang 2019): Sigma at p = 0."""
        return self.expected_Sigma(jnp.zeros((self.layer.heads, *self.shape), self.dtype))

    @property
    def dtype(self) -> Any:
        """What the law computes in: the kernel's dtype as far as JAX's x64 setting admits it."""
        return jnp.result_type(jax.dtypes.canonicalize_dtype(self.L_k.dtype))

    def _score_scale(self, dtype: Any) -> Float[Array, "H 1 1"]:
        return jnp.asarray(self.layer.score_scale * self.layer.score_factor, dtype)[:, None, None]

    def _waves(self, dtype: Any) -> Float[Array, "W q k"]:
        """Cos and sin of theta_b (j - i), divided by sqrt(B)."""
        s_q, s_k = self.shape
        angle = jnp.asarray(self.layer.rotary, dtype)[:, None, None] * (jnp.arange(s_k) - jnp.arange(s_q)[:, None])
        return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)]) * self.layer.rotary.shape[0] ** -0.5

    def _checked(self, p: Any) -> Array:
        """Scores as floating-point numbers of the right shape."""
        p = jnp.asarray(p)
        if p.shape[-3:] != (self.layer.heads, *self.shape):
            raise unusable("p", f"shape (..., {self.layer.heads}, {self.shape[0]}, {self.shape[1]})", p.shape)
        return p if jnp.issubdtype(p.dtype, jnp.floating) else p.astype(self.dtype)
