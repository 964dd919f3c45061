"""Heads of a finite dimension n_H: keys and values are random too, one set for each group of heads.

    p = score_scale L_q E (L_k B)' / sqrt(n_H),    Sigma = H^{-1} sum_a (A_a L D_a) (A_a L D_a)' / n_H

B and D are Bartlett's factors of Wishart matrices of n_H degrees of freedom: standard normal below the diagonal, and on it
sqrt(k e^{a z}) with k = n_H - i and a = sqrt(2 / k). So z is nearly standard normal, and what its density has beyond that is
known. With rotary embeddings keys have all n_H coordinates, which are normal. Exact (THEORY section 6).

Normed queries and keys are divided by their root mean squares; what queries have beyond the frame of the keys enters these by a
factor R of a Wishart matrix of the degrees of freedom that are left. Scores are then not linear in E (THEORY section 14).
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.inference.latent.latents import Latent, Parts
from hierattn.inference.latent.products import product, transposed
from hierattn.layer.architecture import Architecture
from hierattn.numerics.random_numbers import normals


@dataclass(frozen=True, eq=False)
class Lengths:
    """How queries and keys are normed: eps of both, the kind of the norm, and columns of R."""

    eps_q: Any
    eps_k: Any
    kind: str
    columns: int

    def normed(self, x: Float[Array, "H s m network"], beyond: Any, eps: Any, n_H: int) -> Float[Array, "H s m network"]:
        """Divided by root mean squares, some of whose coordinates enter through their sum of squares alone."""
        if self.kind == "layer" and x.shape[2] == n_H:  # else one dimension was left out when they were drawn
            x = x - x.mean(axis=2, keepdims=True)
        square = (jnp.sum(x**2, axis=2, keepdims=True) + beyond) / n_H
        square = square.mean(axis=0, keepdims=True) if self.kind == "rms_all" else square
        return x / jnp.sqrt(square + eps)


jax.tree_util.register_dataclass(Lengths, data_fields=("eps_q", "eps_k"), meta_fields=("kind", "columns"))


@dataclass(frozen=True, eq=False)
class Heads:
    """Made for networks of one layer: L_v is the factor of values, cos and sin turn tokens under rotary embeddings.

    - factor: what scores are multiplied by, n_H^{-1/2} or n_H^{-1}
    - shape: (heads, groups, r_q, r)
    - lengths: norms of queries and keys, None for none
    """

    L_v: Any  # (k, r_v, network or 1)
    turn: Any  # (2, token, frequency, 1), or None
    head_dim: int
    factor: float
    shape: tuple[int, int, int, int]
    lengths: Lengths | None = None

    @property
    def linear(self) -> bool:
        """Unless they are normed."""
        return self.lengths is None

    @property
    def freedom(self) -> int:
        """Coordinates that queries and keys may take."""
        return self.head_dim - (self.lengths is not None and self.lengths.kind == "layer")

    @property
    def shapes(self) -> tuple[tuple[int, int, int], ...]:
        """Shapes of E, B, D and, if there is any, R, less the networks."""
        H, G, r_q, r = self.shape
        m, r_v = (self.head_dim if self.turn is not None else min(r, self.freedom)), self.L_v.shape[1]
        shapes = (H, r_q, m), (G, r, m), (G, r_v, min(r_v, self.head_dim))
        columns = 0 if self.lengths is None else self.lengths.columns
        return (*shapes, (H, r_q, columns)) if columns else shapes

    def parts(self, data: Any, x: Latent) -> Parts:
        """Scores, factors of values, and what chi-squares have beyond normals."""
        keys, keys_beyond = (x.B, 0.0) if self.turn is not None else trapezoid(x.B, self.freedom)
        values, values_beyond = trapezoid(x.D, self.head_dim)
        queries, keys = product(data.L_q, x.E), product(data.L_k, keys)
        if self.lengths is not None:
            squares = jnp.zeros(())
            if x.R is not None:
                rest, beyond = trapezoid(x.R, self.freedom - x.E.shape[2])
                squares, keys_beyond = jnp.sum(product(data.L_q, rest) ** 2, axis=2, keepdims=True), keys_beyond + beyond
            queries = self.lengths.normed(queries, squares, self.lengths.eps_q, self.head_dim)
            keys = self.lengths.normed(keys, 0, self.lengths.eps_k, self.head_dim)
        if self.turn is not None:
            queries, keys = self.turned(queries), self.turned(keys)
        (H, q, m, _), G = queries.shape, len(keys)
        scores = product(queries.reshape(G, H // G, q, m, -1), transposed(keys)[:, None]) * self.factor
        V = product(self.L_v, values) * self.head_dim**-0.5
        return Parts(scores.reshape(H, q, keys.shape[1], -1), V, keys_beyond + values_beyond)

    def turned(self, x: Float[Array, "H s n_H network"]) -> Float[Array, "H s n_H network"]:
        """Pairs of coordinates, one from each half, turned by angles that grow with the token's place."""
        (cos, sin), half = self.turn, x.shape[2] // 2
        first, second = x[:, :, :half], x[:, :, half:]
        return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=2)

    def drawn(self, data: Any, rng_key: Array, networks: int) -> Latent:
        """From the prior exactly."""
        key_normal, *keys = jax.random.split(rng_key, 3)
        x = self.shaped(normals(key_normal, (self.dim, networks), data.L_q.dtype))
        B = x.B if self.turn is not None else self._with_diagonal(x.B, keys[0], self.freedom)
        R = None
        if x.R is not None:
            R = self._with_diagonal(x.R, jax.random.fold_in(rng_key, 3), self.freedom - x.E.shape[2])
        return Latent(x.E, B, self._with_diagonal(x.D, keys[1], self.head_dim), R)

    def _with_diagonal(self, z: Array, rng_key: Array, freedom: int) -> Array:
        k = _freedom(z, freedom)
        log_square = jnp.log(2 * jax.random.gamma(rng_key, k / 2, (len(z), *k.shape[:-1], z.shape[-1])))
        return jnp.where(_diagonal(z), ((log_square - jnp.log(k)) / jnp.sqrt(2 / k))[:, None], z)

    @property
    def dim(self) -> int:
        """Numbers of a network."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    @property
    def score_dim(self) -> int:
        """Numbers of E."""
        return int(np.prod(self.shapes[0]))

    def shaped(self, z: Float[Array, "dim network"]) -> Latent:
        """As E, B, D and R, with zeros above the diagonals."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        x = Latent(*(part.reshape(*shape, -1) for part, shape in zip(jnp.split(z, ends), self.shapes, strict=True)))
        B = x.B if self.turn is not None else jnp.where(_inside(x.B), x.B, 0)
        return Latent(x.E, B, jnp.where(_inside(x.D), x.D, 0), None if x.R is None else jnp.where(_inside(x.R), x.R, 0))

    def rescaled(self, x: Latent, name: str, log_factor: Any) -> Latent:
        """B or D multiplied by a factor, the others as they are."""
        z, c = getattr(x, name), jnp.exp(log_factor)
        if name == "B" and self.turn is not None:
            return x._replace(B=c * z)
        shift = jnp.sqrt(2 * _freedom(z, self.head_dim)) * log_factor
        return x._replace(**{name: jnp.where(_diagonal(z), z + shift, c * z)})

    def gaussians(self, x: Latent, name: str) -> tuple[int, Array]:
        """How many Gaussians B or D is as good as (its density's power of a common scale), and its sum of squares."""
        z = getattr(x, name)
        G, r, m, networks = z.shape
        if name == "B" and self.turn is not None:
            return z.size, jnp.sum(z**2)
        number = m * self.head_dim + r * m - m * m
        return networks * G * number, jnp.sum(trapezoid(z, self.head_dim)[0] ** 2)


jax.tree_util.register_dataclass(Heads, data_fields=("L_v", "turn", "lengths"), meta_fields=("head_dim", "factor", "shape"))


def heads_of(layer: Architecture, L_q: Any, L_k: Any, L_v: Any) -> Heads:
    """For a layer with a finite head_dim, and factors of queries, keys and values with networks last."""
    assert layer.head_dim is not None
    turn = None
    if layer.rotary is not None:
        angle = np.arange(L_k.shape[0])[:, None] * np.asarray(layer.rotary)
        turn = jnp.asarray(np.stack([np.cos(angle), np.sin(angle)]))[..., None]
    shape = layer.heads, layer.groups, L_q.shape[1], L_k.shape[1]
    made = Heads(L_v, turn, layer.head_dim, float(layer.score_factor * layer.head_dim**-0.5), shape)
    if layer.qk_norm is None:
        return made
    free = layer.head_dim - (layer.qk_norm == "layer")
    columns = 0 if turn is not None else min(shape[2], max(free - shape[3], 0))
    eps_q, eps_k = (layer.qk_eps / np.ravel(sigma)[0] ** 2 for sigma in (layer.sigma_q, layer.sigma_k))
    return replace(made, lengths=Lengths(eps_q, eps_k, layer.qk_norm, columns))


def trapezoid(z: Float[Array, "G r m network"], n_H: int) -> tuple[Float[Array, "G r m network"], Float[Array, " network"]]:
    """Bartlett's factor of latents z, and the log density of z beyond that of standard normals."""
    diagonal, k = _diagonal(z), _freedom(z, n_H)
    on = jnp.sum(jnp.where(diagonal, z, 0), axis=1)
    a = jnp.sqrt(2 / k)
    factor = jnp.where(diagonal, (jnp.sqrt(k) * jnp.exp(a / 2 * on))[:, None], jnp.where(_inside(z), z, 0))
    return factor, jnp.sum(k / 2 * (a * on - jnp.expm1(a * on)) + on**2 / 2, axis=(0, 1))


def _freedom(z: Array, n_H: int) -> Float[Array, "m 1"]:
    """Degrees of freedom on the diagonal."""
    return jnp.asarray(n_H - np.arange(z.shape[2]), z.dtype)[:, None]


def _diagonal(z: Array) -> np.ndarray:
    return np.eye(z.shape[1], z.shape[2])[..., None] > 0


def _inside(z: Array) -> np.ndarray:
    return np.tri(z.shape[1], z.shape[2])[..., None] > 0
