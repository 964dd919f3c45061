"""The infinite-width law of an attention layer: (architecture, K) -> everything that can be asked of its outputs.

    law = Law(layer, K)
    law.sample(rng_key, networks, coordinates)         outputs (network, token, coordinate), with the real hierarchy
    law.moments(token), law.marginal(token)            one token's outputs: variance and kurtosis, its distribution
    law.joint_moments(tokens), law.infinite_heads()    second and fourth moments over tokens, the Gaussian limit

The hierarchy itself, scores p and covariance Sigma(p), is in `hierarchy`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import unusable
from hierattn.base.tracing import traced
from hierattn.law import joint_moments, moments, one_token, sampling, token_law
from hierattn.law.hierarchy import Hierarchy
from hierattn.law.joint_moments import JointMoments
from hierattn.law.marginal import Marginal
from hierattn.law.moments import Moments
from hierattn.law.sampled import Sampled
from hierattn.layer import kernels
from hierattn.layer.architecture import Architecture


@jax.tree_util.register_pytree_node_class
class Law(Hierarchy, Sampled):
    """The law of the outputs of `layer` for inputs with kernel K.

    - K: (s, s), kernel of the inputs; with cross-attention that of keys and values
    - query_kernel: (s_q, s_q), kernel of the queries' inputs where they differ (cross-attention)

    One network is one draw of the scores: `sample` draws networks, and for each its coordinates. The first networks are
    the same however many are asked for. dtype follows K and JAX's x64 setting.
    """

    def __init__(self, layer: Architecture, K: Any, query_kernel: Any = None) -> None:
        K = kernels.check(K)
        if K.ndim != 2:
            raise unusable("K", "one kernel (tokens, tokens)", f"shape {K.shape}", "for one per network use Law.from_factors")
        K_q = K if query_kernel is None else kernels.check(query_kernel, "query_kernel").astype(K.dtype)
        s_q, s_k = K_q.shape[-1], K.shape[-1]
        layer.allowed(s_q, s_k)
        if layer.bias is not None and layer.bias.shape[-2:] != (s_q, s_k):
            raise unusable("bias", f"shape {(s_q, s_k)} (queries, keys) or one per head", layer.bias.shape)
        L_k = kernels.factor(K)
        _check_norms(layer, K, K_q)
        self.layer, self.L_k, self.L_q = layer, L_k, L_k if query_kernel is None else kernels.factor(K_q)

    def __repr__(self) -> str:
        H, (s_q, s_k) = self.layer.heads, self.shape
        head_dim = "infinite" if self.layer.head_dim is None else self.layer.head_dim
        return f"Law(heads={H}, head_dim={head_dim}, queries={s_q}, keys={s_k}, scaling={self.layer.scaling!r})"

    def with_inputs(self, rng_key: Array, networks: int) -> Hierarchy:
        """The law given the inputs of these networks: they are fixed, so it is the law itself."""
        return self

    def variances_of(self, token: int, keys: np.ndarray, heads: Any, networks: int) -> sampling.Recipe:
        """The recipe for conditional variances of one token that sees these keys."""
        S_q, S_k = self.score_factors()
        S_q, *L = (x.astype(self.dtype) for x in (S_q[token], S_k[keys, :, None], self.L_k[keys, :, None]))
        return one_token.given_factors(heads, (S_q**2).sum(), *L)

    def sample_given(self, rng_key: Array, p: Any, coordinates: int = 1) -> Float[Array, "network q coordinate"]:
        """Outputs of networks whose scores p (network, head, query, key) are given; with `sample_scores`, `sample` itself."""
        p = self.checked(p).astype(self.dtype)
        if p.ndim != 4:
            raise unusable("p", "scores (network, head, query, key)", f"shape {p.shape}")
        sampling.check_draws(self.dtype, rng_key, self.shape[0], networks=p.shape[0], coordinates=coordinates)
        return jnp.concatenate([drawn.y for drawn in sampling.draw_networks(self, rng_key, len(p), coordinates, p)])

    def moments(self, token: int = 0, seed: int = 0) -> Moments:
        """Variance and excess kurtosis of one token's outputs, each with its error."""
        return moments.of_token(self, token, seed)

    def marginal(self, token: int = 0, accuracy: float | None = None, seed: int = 0) -> Marginal:
        """The distribution of one token's outputs: pdf, cdf, sf, ppf, ... with errors.

        Without an accuracy the density is known to 1e-7 of its peak where rules reach that; with one it is a promise, and a
        warning tells if it could not be kept.
        """
        return token_law.of_token(self, token, accuracy, seed)

    def joint_moments(self, tokens: list[int] | None = None, seed: int = 0) -> JointMoments:
        """Mean and covariance of Sigma over (some) tokens, hence second and fourth moments of the outputs, with errors."""
        return joint_moments.of_tokens(self, tokens, seed)

    def infinite_heads(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Covariance over tokens, with its error, of the Gaussian limit of infinitely many heads (Hron et al. 2020)."""
        return joint_moments.mean_of_tokens(self.with_infinite_head_dim(), seed)


def _check_norms(layer: Architecture, *kernels_: Any) -> None:
    """Tokens of length zero cannot be normed."""
    if layer.qk_norm is None or traced(layer.qk_eps) or layer.qk_eps:
        return
    if any(not traced(K) and np.any(np.diagonal(K) == 0) for K in kernels_):
        raise unusable("qk_eps", "a positive number where a token has length zero", 0.0)
