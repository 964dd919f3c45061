"""The law of latent attention at infinite width: given the latents' Gram matrices it is the law of finite head_dim.

    C = r^{-1} B_r B_r',  B_r B_r' ~ Wishart_r(K), its rows normed       the latent of keys and values, one for all heads
    p = sqrt(n_H / n) p_content + sqrt(n_R / n) p_position               scores of both parts add, n = n_H + n_R
    y | p, C ~ N(0, Sigma),  Sigma = H^{-1} sum_a A_a V_a V_a' A_a' / n_V,  V_a V_a' ~ Wishart_{n_V}(C)

p_content has C as kernel of the keys, p_position the inputs' own kernel K and one key for all heads; queries have K, or the
Gram matrix of a normed latent of their own. Exact (THEORY sections 6 and 14). Heads share the latents: with infinitely many of
them outputs are not Gaussian, unless ranks are infinite too.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import unusable
from hierattn.law.hierarchy import Base, Hierarchy
from hierattn.law.joint_moments import MOST_TOKENS, JointMoments
from hierattn.law.marginal import Marginal, from_draws
from hierattn.law.moments import Moments
from hierattn.law.sampled import Sampled
from hierattn.layer import kernels
from hierattn.layer.architecture import Architecture
from hierattn.layer.latent import LatentAttention
from hierattn.numerics import rqmc
from hierattn.numerics.wishart import bartlett

NETWORKS, BATCHES = 2**17, 16  # drawn for moments over tokens


class LatentLaw(Sampled):
    """The law of the outputs of latent attention for inputs with kernel K (s, s). Draws like a `Law`."""

    def __init__(self, description: LatentAttention, K: Any) -> None:
        K = kernels.check(K)
        if K.ndim != 2:
            raise unusable("K", "one kernel (tokens, tokens)", f"shape {K.shape}")
        description.values.allowed(len(K), len(K))
        if not description.eps and np.any(np.diagonal(K) == 0):
            raise unusable("eps", "a positive number where a token has length zero", 0.0)
        self.description, self.L, self.layer = description, kernels.factor(K), description.values

    @classmethod
    def from_factors(cls, description: LatentAttention, L: Any) -> "LatentLaw":
        """The law for K = L L' with L at hand, unchecked."""
        self = object.__new__(cls)
        self.description, self.L, self.layer = description, L, description.values
        return self

    def __repr__(self) -> str:
        d = self.description
        return f"LatentLaw(heads={d.heads}, head_dim={d.head_dim}, key_rank={d.key_rank}, tokens={len(self.L)})"

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, keys)."""
        return len(self.L), len(self.L)

    @property
    def dtype(self) -> Any:
        """The kernel's dtype as far as JAX's x64 setting admits it."""
        return jnp.result_type(jax.dtypes.canonicalize_dtype(self.L.dtype))

    def with_inputs(self, rng_key: Array, networks: int) -> Any:
        """The law given the latents of these networks."""
        key_k, key_q = jax.random.split(rng_key)
        d, L = self.description, jnp.asarray(self.L, self.dtype)
        keys = latent(key_k, L, d.key_rank, d.eps / d.sigma_key_latent**2, networks)
        queries = L
        if d.query_rank is not None:
            queries = latent(key_q, L, d.query_rank, d.eps / d.sigma_query_latent**2, networks)
        content, values = (Hierarchy.from_factors(layer, keys, queries) for layer in (d.content, d.values))
        position = None if d.position is None else Hierarchy.from_factors(d.position, L, queries)
        return GivenLatents(content, position, values, (d.head_dim / d.dim) ** 0.5)

    def variances_of(self, token: int, keys: np.ndarray, heads: Any, networks: int) -> None:
        """There is no shortcut."""

    def marginal(self, token: int = 0, networks: int = 2**19, seed: int = 0) -> Marginal:
        """The distribution of one token's outputs by Monte Carlo over this many networks: pdf, cdf, ppf, ... with errors."""
        return from_draws(self, token, networks, seed)

    def moments(self, token: int = 0, seed: int = 0) -> Moments:
        """Variance and excess kurtosis of one token's outputs, each with its error."""
        found = self.marginal(token, seed=seed)
        variance_error, kurtosis_error = float(found.error("moment", 2)), float(found.error("excess_kurtosis"))
        return Moments(float(found.variance), variance_error, float(found.excess_kurtosis), kurtosis_error, found.method)

    def joint_moments(self, tokens: list[int] | None = None, seed: int = 0) -> JointMoments:
        """Mean and covariance of Sigma over (some) tokens, hence second and fourth moments of the outputs, with errors."""
        tokens = list(range(len(self.L))) if tokens is None else tokens
        if not 0 < len(tokens) <= MOST_TOKENS or not set(tokens) <= set(range(len(self.L))):
            raise unusable("tokens", f"at most {MOST_TOKENS} of 0 to {len(self.L) - 1}", tokens)
        keys = jax.random.split(jax.random.key(seed), BATCHES)
        Sigma = (np.asarray(self.sample_Sigma(key, NETWORKS // BATCHES), float) for key in keys)
        each = [x[:, tokens][:, :, tokens] for x in Sigma]
        mean = np.stack([x.mean(axis=0) for x in each])
        about = mean.mean(axis=0)
        covariance = np.stack([np.einsum("nij,nkl->ijkl", x - about, x - about, optimize=True) / len(x) for x in each])
        return JointMoments(about, rqmc.error(mean), covariance.mean(axis=0), rqmc.error(covariance))

    def infinite_heads(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Covariance over tokens, with its error: the mean of Sigma, which does not depend on the number of heads."""
        found = self.joint_moments(seed=seed)
        return found.mean, found.mean_error


def latent(
    rng_key: Array, L: Float[Array, "s r"], rank: Any, eps: float, networks: int
) -> Float[Array, "network s m"] | Float[Array, "s r"]:
    """Factors of the Gram matrix of a normed latent of so many coordinates, for inputs with factor L."""
    c = L if rank == math.inf else L @ bartlett(rng_key, rank, L.shape[-1], (networks,), L.dtype) * rank**-0.5
    return c / jnp.sqrt(jnp.sum(c**2, axis=-1, keepdims=True) + eps)


class GivenLatents(NamedTuple):
    """Networks whose latents are given: laws of both parts of scores and of values; share: the root of the content's."""

    content: Hierarchy
    position: Hierarchy | None
    values: Hierarchy
    share: Any

    @property
    def layer(self) -> Architecture:
        """Weights, values and outputs."""
        return self.values.layer

    def sample_base(self, rng_key: Array, networks: int) -> tuple[Base, Base | None]:
        """Standard variables of both parts."""
        keys = jax.random.split(rng_key)
        position = None if self.position is None else self.position.sample_base(keys[1], networks)
        return self.content.sample_base(keys[0], networks), position

    def scores_from(self, content: Base, position: Base | None) -> Float[Array, "network H q k"]:
        """The scores made of them."""
        p = self.share * self.content.scores_from(*content)
        if self.position is None or position is None:
            return p
        return p + (1 - self.share**2) ** 0.5 * self.position.scores_from(*position)

    def factor(self, p: Array, D: Array | None) -> Float[Array, "network q Hr"]:
        """F with Sigma = F F'."""
        return self.values.factor(p, D)

    def sample_values(self, rng_key: Array, networks: int) -> Array | None:
        """Value factors."""
        return self.values.sample_values(rng_key, networks)
