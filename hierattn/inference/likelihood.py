"""The likelihood of networks given their scores, from sufficient statistics, with its gradient by hand.

    log p(Y_m | p_m) = -n/2 logdet(2 pi o^2 Sigma_m) - tr(Sigma_m^{-1} S_m) / (2 o^2),    S_m = Y_m Y_m'

with Sigma = H^{-1} sum_a A_a K A_a', A the weights of scores q L_q E L_k', q = score_scale, o = value_scale (THEORY section 9).
The cost does not depend on the number n of coordinates. Networks are on the last axis, and sums over tokens are written out:
many times faster on a CPU than batched small matrices. Where a constant added to a row of scores changes nothing, as under
softmax, the keys' factor is centred and has one column less than there are keys.

That is the law at infinite head_dim, its gradient by hand. Where scores and values are made of latents otherwise (`latent`)
E stands for those, Sigma = H^{-1} sum_a (A_a V_a) (A_a V_a)' with factors V of values, and gradients go back through products.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.inference.latent.heads import heads_of
from hierattn.inference.latent.latents import Latents, Made, squares
from hierattn.inference.latent.products import gram, over_heads, product, summed, total, transposed, whole
from hierattn.inference.latent.waves import waves_of
from hierattn.layer import kernels
from hierattn.layer.architecture import Architecture
from hierattn.numerics.random_numbers import normals

ROUNDING = 1e-13  # of a pivot, relative to the token's variance


@dataclass(frozen=True, eq=False)
class Data:
    """Observed networks, on the last axis; one factor for all of them has a last axis of length 1.

    Tokens are the observed queries, or the coordinates of a subspace U' y where outputs live on one. L_q and L_k are factors of
    the kernels as scores see them, K is that of values. `made`: how scores and values are made of latents, None for
    p = q L_q E L_k' and K. `unknown`: a kernel that is a parameter, for which K = I stands here. `rounded`: may forces along
    trajectories be computed in single precision?
    """

    S: Any  # (t, t, network)
    n: Any
    L_q: Any  # (q, r_q, network or 1)
    L_k: Any  # (k, r, network or 1)
    K: Any  # (k, k, network or 1)
    weighing: Any  # of scores (head, query, key, network)
    U: Any  # (q, t)
    made: Any = None
    unknown: Any = None
    rounded: bool = False

    @property
    def latent_shape(self) -> tuple[int, int, int, int]:
        """Shape of E: (head, query factor, key factor, network)."""
        return self.weighing.added.shape[0], self.L_q.shape[1], self.L_k.shape[1], self.S.shape[-1]

    @property
    def latent_dim(self) -> int:
        """Latent numbers of a network."""
        return int(np.prod(self.latent_shape[:-1])) if self.made is None else self.made.dim

    @property
    def score_dim(self) -> int:
        """Those among them in which scores are linear."""
        return int(np.prod(self.latent_shape[:-1])) if self.made is None else self.made.score_dim

    def drawn(self, rng_key: Array, networks: int | None = None) -> Latents:
        """Latents from their prior, of the observed networks or of so many."""
        networks = networks or self.S.shape[-1]
        if self.made is None:
            return normals(rng_key, (*self.latent_shape[:-1], networks))
        return self.made.drawn(self, rng_key, networks)

    def shaped(self, z: Float[Array, "dim network"]) -> Latents:
        """Standard normals in the shape of latents."""
        return z.reshape(*self.latent_shape[:-1], -1) if self.made is None else self.made.shaped(z)


ARRAYS = ("S", "n", "L_q", "L_k", "K", "weighing", "U", "made", "unknown")
jax.tree_util.register_dataclass(Data, data_fields=ARRAYS, meta_fields=("rounded",))


class Terms(NamedTuple):
    """Log determinant of Sigma and tr(Sigma^{-1} S) of every network, for value_scale 1."""

    logdet: Float[Array, " network"]
    trace: Float[Array, " network"]


class InFactors(NamedTuple):
    """A gradient in data.L_q, data.L_k and data.K."""

    L_q: Array
    L_k: Array
    K: Array


def prepare(S: Any, n: int, layer: Architecture, K: Any, tokens: Any = None, U: Any = None) -> Data:
    """Data of networks with statistics S (network, token, token) and kernel K, one or one per network; tokens: those seen."""
    K = np.asarray(K, float)
    k = K.shape[-1]
    tokens = np.arange(k) if tokens is None else np.asarray(tokens)
    weighing = layer.weighing(k, k)
    K_q, K_k = layer.score_kernels(K)
    turned = layer.rotary is not None  # keys are turned before rows of scores are centred
    if weighing.shift_invariant and not turned and layer.head_dim is None:
        K_k = K_k - K_k.mean(axis=-2, keepdims=True) - K_k.mean(axis=-1, keepdims=True) + K_k.mean(axis=(-2, -1), keepdims=True)
    S = np.asarray(S, float) if U is None else U.T @ S @ U
    factors = (kernels.factor(K_q[..., tokens[:, None], tokens]), kernels.factor(K_k), K)
    networks_last = (jnp.asarray(np.moveaxis(x if x.ndim == 3 else x[None], 0, -1)) for x in (S, *factors))
    statistics, L_q, L_k, K_all = networks_last
    U = None if U is None else jnp.asarray(U)
    made = _made(layer, K, L_q, L_k) if layer.head_dim is not None or layer.rotary is not None else None
    weighing = weighing.of_queries(tokens, layer.heads, k)
    return Data(statistics, jnp.asarray(float(n)), L_q, L_k, K_all, weighing, U, made)


def _made(layer: Architecture, K: np.ndarray, L_q: Any, L_k: Any) -> Made:
    """For finite head_dim, or rotary embeddings."""
    factor = kernels.factor(K)
    L_v = jnp.asarray(np.moveaxis(factor if K.ndim == 3 else factor[None], 0, -1))
    if layer.head_dim is None:
        return waves_of(layer, K, L_v)
    return heads_of(layer, L_q, L_k, L_v)


def covariance(data: Data, E: Latents, q: Any) -> Float[Array, "t t network"]:
    """Sigma of every network for value_scale 1."""
    if data.made is None:
        return covariance_of(data, attention(data, E, q))
    found = data.made.parts(data, E)
    return _from_values(data, data.weighing.weights(q * found.scores), found.values)


def log_prior(data: Data, E: Latents) -> Float[Array, " network"]:
    """Of latents, but for a constant."""
    beyond = 0.0 if data.made is None else data.made.parts(data, E).beyond
    return beyond - squares(E) / 2


def covariance_of(data: Data, A: Float[Array, "H q k network"]) -> Float[Array, "t t network"]:
    """Sigma of attention weights, for value_scale 1."""
    return _covariance(*_rows(data, A))


def terms(data: Data, E: Latents, q: Any) -> Terms:
    """What the likelihood is made of."""
    P, logdet = inverse(covariance(data, E, q))
    return Terms(logdet, jnp.sum(P * data.S, axis=(0, 1)))


@jax.custom_vjp
def terms_of(S: Float[Array, "t t network"], Sigma: Float[Array, "t t network"]) -> Terms:
    """Of covariances, with a gradient in these."""
    return _terms_and_inverse(S, Sigma)[0]


def _terms_and_inverse(S: Array, Sigma: Array) -> tuple[Terms, Array]:
    P, logdet = inverse(Sigma)
    return Terms(logdet, jnp.sum(P * S, axis=(0, 1))), P


def _terms_forward(S: Array, Sigma: Array) -> tuple[Terms, tuple[Array, Array]]:
    found, P = _terms_and_inverse(S, Sigma)
    return found, (S, P)


def _terms_back(kept: tuple[Array, Array], g: Terms) -> tuple[None, Array]:
    S, P = kept
    return None, g.logdet * P - g.trace * product(product(P, S), P)


terms_of.defvjp(_terms_forward, _terms_back)


def log_likelihood(data: Data, found: Terms, o: Any) -> Float[Array, "*scores network"]:
    """Of every network, for value_scale o."""
    t = data.S.shape[0]
    return -data.n / 2 * (found.logdet + t * jnp.log(2 * jnp.pi * o**2)) - found.trace / (2 * o**2)


def deviances(Sigma: Float[np.ndarray, "place t t"], S: Float[np.ndarray, "t t"]) -> Float[np.ndarray, " place"]:
    """How badly covariances, each up to a factor, explain the mean of S, as if outputs were Gaussian."""
    values, vectors = np.linalg.eigh(Sigma)
    values = np.maximum(values, 1e-10 * values[:, -1:])
    along = np.einsum("qji,jk,qki->qi", vectors, S, vectors)
    return len(S) * np.log(np.sum(along / values, axis=1)) + np.sum(np.log(values), axis=1)


def terms_and_gradient(data: Data, E: Latents, q: Any, o: Any) -> tuple[Terms, Latents]:
    """What the likelihood is made of, and the gradient in E of its logarithm (and of what the prior has beyond normals)."""
    return _through_parts(data, E, q, o) if data.made is not None else terms_and_gradients(data, E, q, o)[:2]


def terms_and_gradients(data: Data, E: Array, q: Any, o: Any) -> tuple[Terms, Array, InFactors]:
    """The same at infinite head_dim, and the gradient in what the kernel gives.

    d/dSigma = (P S P / o^2 - n P) / 2 with P = Sigma^{-1}; then back through Sigma, weights and scores.
    """
    left = _left(data, E)
    p = whole(_scores(data, left, q))
    A = whole(data.weighing.weights(p))
    rows, rows_K = jax.tree.map(whole, _rows(data, A))
    P, logdet = jax.tree.map(whole, inverse(_covariance(rows, rows_K)))
    t, H = data.S.shape[0], A.shape[0]
    G = whole(_in_covariance(data, P, o))
    d_rows = 2 / H * total(lambda k: G[None, :, k, None] * rows_K[:, k, None], t)
    U = data.U
    dA = d_rows if U is None else total(lambda k: U[:, k, None, None] * d_rows[:, None, k], t)
    dp = q * whole(data.weighing.pull_back(p, A, dA))
    back = whole(total(lambda j: dp[:, :, j, None] * data.L_k[j], data.L_k.shape[0]))
    gradient = total(lambda i: back[:, i, None] * data.L_q[i][:, None], data.L_q.shape[0])
    in_L_q, in_L_k = over_heads(back, transposed(E)), over_heads(transposed(dp), left)
    in_K = over_heads(transposed(rows), product(G[None], rows)) / H
    in_factors = InFactors(summed(in_L_q, data.L_q.shape), summed(in_L_k, data.L_k.shape), summed(in_K, data.K.shape))
    return Terms(logdet, jnp.sum(P * data.S, axis=(0, 1))), gradient, in_factors


def _in_covariance(data: Data, P: Array, o: Any) -> Float[Array, "t t network"]:
    """The gradient in Sigma."""
    return product(product(P, data.S), P) / (2 * o**2) - data.n / 2 * P


def _through_parts(data: Data, E: Latents, q: Any, o: Any) -> tuple[Terms, Latents]:
    """The same where latents make scores and values in a way of their own."""
    found, to_latents = jax.vjp(lambda x: data.made.parts(data, x), E)
    p = q * found.scores
    A = data.weighing.weights(p)
    Sigma, to_weights = jax.vjp(lambda A, V: _from_values(data, A, V), A, found.values)
    P, logdet = inverse(Sigma)
    dA, dV = to_weights(_in_covariance(data, P, o))
    dp = data.weighing.pull_back(p, A, dA)
    (gradient,) = to_latents(type(found)(q * dp, dV, jnp.ones_like(found.beyond)))
    return Terms(logdet, jnp.sum(P * data.S, axis=(0, 1))), gradient


def _from_values(data: Data, A: Float[Array, "H q k network"], V: Float[Array, "G k m _"]) -> Float[Array, "t t network"]:
    """Sigma of attention weights and factors of values, one set for each group of heads or for all."""
    H, q, k, networks = A.shape
    rows = product(A.reshape(len(V), H // len(V), q, k, networks), V[:, None]).reshape(H, q, V.shape[2], networks)
    return gram(rows if data.U is None else product(data.U.T[None, :, :, None], rows)) / H


def attention(data: Data, E: Array, q: Any) -> Float[Array, "H q k network"]:
    """Weights A of the scores of latent E."""
    return data.weighing.weights(_scores(data, _left(data, E), q))


def _left(data: Data, E: Array) -> Float[Array, "H q r network"]:
    """L_q E."""
    return whole(total(lambda c: data.L_q[:, c, None] * E[:, None, c], data.L_q.shape[1]))


def _scores(data: Data, left: Array, q: Any) -> Float[Array, "H q k network"]:
    """P = q L_q E L_k'."""
    return q * total(lambda c: left[:, :, None, c] * data.L_k[:, c], data.L_k.shape[1])


def _rows(data: Data, A: Array) -> tuple[Array, Array]:
    """Rows of attention (U' A on a subspace), and these times K."""
    U, s, k = data.U, data.L_q.shape[0], data.K.shape[0]
    rows = A if U is None else total(lambda i: U[i, :, None, None] * A[:, i, None], s)
    return rows, total(lambda j: rows[:, :, j, None] * data.K[j], k)


def _covariance(rows: Array, rows_K: Array) -> Array:
    return over_heads(rows, transposed(rows_K)) / len(rows)


def inverse(Sigma: Float[Array, "t t network"]) -> tuple[Float[Array, "t t network"], Float[Array, " network"]]:
    """Inverse and log determinant by Gauss-Jordan elimination, a pivot at a time for all networks.

    NaN where a pivot, what earlier tokens leave of a token's variance, is rounding: Sigma is then singular.
    """
    t, diagonal = Sigma.shape[0], jnp.diagonal(Sigma).T

    def eliminate(k: Any, state: tuple) -> tuple:
        P, logdet = state
        here = (jnp.arange(t) == k)[:, None]
        row, column = (jax.lax.dynamic_index_in_dim(P, k, axis, keepdims=False) for axis in (0, 1))
        pivot = jnp.sum(jnp.where(here, row, 0), axis=0)
        pivot = jnp.where(pivot > ROUNDING * jax.lax.dynamic_index_in_dim(diagonal, k, keepdims=False), pivot, jnp.nan)
        row, column = jnp.where(here, 1, row) / pivot, jnp.where(here, 0, column)
        P = jnp.where(here[None], 0, P) - column[:, None] * row[None]
        return jnp.where(here[:, None], row[None], P), logdet + jnp.log(pivot)

    return jax.lax.fori_loop(0, t, eliminate, (Sigma, jnp.zeros(Sigma.shape[-1], Sigma.dtype)))
