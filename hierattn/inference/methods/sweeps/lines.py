"""Moves of attention weights along straight lines, on which nearly singular covariances are no obstacle.

    A -> A + x w (e_j - e_l)'        one head; w over tokens, e_j and e_l two keys; rows keep their sums

Where an eigenvalue of Sigma is tiny, u' A must stay in a thin shell. That is bent in the scores but straight in A: with w at a
right angle to u a line stays inside. On a line the conditional density of x is one of few numbers, since Sigma changes by a
matrix of rank two, and x is drawn by slice sampling (Neal 2003) between the places where a weight would become negative. Lines
do not depend on where a chain is, so that any choice of them leaves the posterior as it is.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hierattn.inference.latent.products import total
from hierattn.inference.likelihood import Data, Terms, attention, covariance_of, inverse, terms
from hierattn.inference.methods.sweeps.directions import Lines
from hierattn.inference.methods.sweeps.picking import dot, in_rows, of_head, of_key, of_rows, times

SHRINKS = 12  # of an interval at most; a move that finds nothing until then stays
TINY = 1e-300


class Line(NamedTuple):
    """A line of every network: changes w of the rows that it changes (`on`), and the weights A_j, A_l that change."""

    w: Float[Array, "row network"]
    on: Array
    A_j: Float[Array, "row network"]
    A_l: Float[Array, "row network"]

    def ends(self) -> tuple[Array, Array]:
        """The interval of x in which all weights are positive; (0, 0) where none change, or one is zero already."""
        up = jnp.where(self.w > 0, self.A_l, self.A_j) / jnp.maximum(jnp.abs(self.w), TINY)
        down = jnp.where(self.w > 0, self.A_j, self.A_l) / jnp.maximum(jnp.abs(self.w), TINY)
        low, high = (jnp.min(jnp.where(self.on, x, jnp.inf), axis=0) for x in (down, up))
        some = self.on.any(axis=0) & self.inside(jnp.zeros_like(low))
        return jnp.where(some, -low, 0.0), jnp.where(some, high, 0.0)

    def weights(self, x: Float[Array, " network"]) -> Float[Array, "2 row network"]:
        """A_j and A_l at x; 1 where nothing changes."""
        return jnp.where(self.on, jnp.stack([self.A_j + x * self.w, self.A_l - x * self.w]), 1.0)

    def inside(self, x: Float[Array, " network"]) -> Array:
        """Are all weights positive?"""
        weights = self.weights(x)
        return reduce(jnp.logical_and, [weights[side, i] > 0 for side in (0, 1) for i in range(len(self.w))])

    def logs(self, x: Float[Array, " network"]) -> Float[Array, "2 row network"]:
        """Logarithms of the weights. Sums over keys of e^p do not change, so that scores change as they do."""
        return jnp.log(jnp.maximum(self.weights(x), TINY))


def move_along_lines(data: Data, lines: Lines, E: Array, q: Any, o: Any, rng_key: Array, moves: int) -> tuple[Array, Terms]:
    """Latent E after so many moves, and terms of the likelihood there. All networks move along the same keys of one head."""
    H, keys, networks = E.shape[0], data.L_k.shape[0], E.shape[-1]
    key_which, key_where = jax.random.split(rng_key)
    tops = jnp.array([len(lines.w), H, keys, keys - 1])
    which = jnp.floor(jax.random.uniform(key_which, (moves, 4)) * tops).astype(int)
    where = jax.random.uniform(key_where, (moves, SHRINKS + 1, networks))

    def move(i: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        E, A, P = state
        b, h, j, l = which[i]  # noqa: E741
        head = (jnp.arange(H) == h)[:, None, None, None]  # chosen by masks: chains choose differently, and XLA would scatter
        e_j, e_l = (jnp.arange(keys) == key for key in (j, (j + 1 + l) % keys))
        E_h, A_h = of_head(E, h), of_head(A, h)
        w, rows = lines.w[b], lines.rows[b]
        allowed = data.weighing.allowed
        if allowed is not None:
            both = of_key(allowed, e_j) & of_key(allowed, e_l)
            w = jnp.where(of_rows(both, rows), w, 0.0)
        line = Line(w, w != 0, *(of_rows(of_key(A_h, e), rows) for e in (e_j, e_l)))
        d_K = of_key(data.K, e_j) - of_key(data.K, e_l)
        k = of_key(d_K[None], e_j)[0] - of_key(d_K[None], e_l)[0]
        plane = Plane.of(data, P, in_rows(w, rows, len(A_h)), total(lambda key: A_h[:, key] * d_K[key], keys), k, H)
        G = [of_key(lines.L_k_inverse, e) for e in (e_j, e_l)]
        to_E = [times(lines.L_q_inverse.swapaxes(0, 1), times(E_h, g)) for g in G]
        precision = lines.precision[rows[:, None], rows] / q**2
        prior = _prior_and_volume(line, [of_rows(x, rows) / q for x in to_E], G, precision)

        def log_density(x: Array) -> Array:
            inside, value = line.inside(x), plane.log_likelihood(x, data.n, o) + prior(line.logs(x))
            return jnp.where(inside & jnp.isfinite(value), value, -jnp.inf)

        x = _drawn(log_density, line.ends(), where[i])
        steps = (line.logs(x) - line.logs(jnp.zeros_like(x))) / q
        change = sum(times(lines.L_q_inverse, in_rows(steps[n], rows, len(A_h)))[:, None] * G[n] for n in (0, 1))
        to_A = in_rows(x * w, rows, len(A_h))[:, None] * (e_j.astype(x.dtype) - e_l)[:, None]
        A = jnp.where(head, A + to_A, A)
        return jnp.where(head, E + change, E), A, plane.inverse(P, x)

    A = attention(data, E, q)
    E, _, _ = jax.lax.fori_loop(0, moves, move, (E, A, inverse(covariance_of(data, A))[0]))
    return E, terms(data, E, q)


class Plane(NamedTuple):
    """Sigma on a line, Sigma + (x (w b' + b w') + x^2 k w w') / H: what its inverse and determinant are made of."""

    P_w: Float[Array, "t network"]
    P_b: Float[Array, "t network"]
    products: tuple  # w' P w, w' P b, b' P b
    traces: tuple  # the same with P S P
    k: Any
    H: int

    @classmethod
    def of(cls, data: Data, P: Array, w: Array, b: Array, k: Array, H: int) -> "Plane":
        """At x = 0, where P is the inverse."""
        P_w, P_b = times(P, w), times(P, b)
        S_w, S_b = times(data.S, P_w), times(data.S, P_b)
        products = dot(w, P_w), dot(w, P_b), dot(b, P_b)
        return cls(P_w, P_b, products, (dot(P_w, S_w), dot(P_w, S_b), dot(P_b, S_b)), k, H)

    def at(self, x: Float[Array, " network"]) -> tuple[Array, tuple[Array, Array, Array]]:
        """By what Sigma's determinant is multiplied, and n: P(x) = P - n_0 P_w P_w' - n_1 (P_w P_b' + P_b P_w') - n_2 P_b P_b'.

        Of the 2 x 2 matrices I + M Z' P Z and (I + M Z' P Z)^{-1} M, Z = (w, b), M = ((m, x / H), (x / H, 0)).
        """
        ww, wb, bb = self.products
        m, x = x**2 * self.k / self.H, x / self.H
        determinant = (1 + m * ww + x * wb) * (1 + x * wb) - (m * wb + x * bb) * x * ww
        return determinant, tuple(n / determinant for n in (m - x * x * bb, x * (1 + x * wb), -x * x * ww))

    def log_likelihood(self, x: Float[Array, " network"], n: Any, o: Any) -> Float[Array, " network"]:
        """Less that at x = 0."""
        determinant, (n_ww, n_wb, n_bb) = self.at(x)
        ww, wb, bb = self.traces
        trace = -(n_ww * ww + 2 * n_wb * wb + n_bb * bb)
        value = -n / 2 * jnp.log(jnp.maximum(determinant, TINY)) - trace / (2 * o**2)
        return jnp.where(determinant > 0, value, -jnp.inf)

    def inverse(self, P: Float[Array, "t t network"], x: Float[Array, " network"]) -> Float[Array, "t t network"]:
        """Of Sigma at x."""
        _, (n_ww, n_wb, n_bb) = self.at(x)
        of_w, of_b = n_ww * self.P_w + n_wb * self.P_b, n_wb * self.P_w + n_bb * self.P_b
        return P - of_w[:, None] * self.P_w - of_b[:, None] * self.P_b


def _prior_and_volume(line: Line, from_E: list[Array], G: list[Array], precision: Array) -> Callable[[Array], Array]:
    """Log prior of E, and the volume by which p changes with A, for logarithms of weights; less those at x = 0.

    Row by row: what is written out is one loop over networks.
    """
    jj, jl, ll = (dot(*g) for g in ((G[0], G[0]), (G[0], G[1]), (G[1], G[1])))
    before, rows = line.logs(jnp.zeros_like(line.w[0])), range(len(line.w))

    def change(log_A: Float[Array, "2 row network"]) -> Float[Array, " network"]:
        c, d = log_A - before
        Q_c, Q_d = ([sum(precision[i, k] * v[k] for k in rows) for i in rows] for v in (c, d))
        squares = total(lambda i: c[i] * (jj * Q_c[i] + 2 * jl * Q_d[i]) + ll * d[i] * Q_d[i], len(c))
        return -total(lambda i: c[i] * (from_E[0][i] + 1) + d[i] * (from_E[1][i] + 1), len(c)) - squares / 2

    return change


def _drawn(
    log_density: Callable[[Array], Array], ends: tuple[Array, Array], uniforms: Float[Array, "shrink network"]
) -> Float[Array, " network"]:
    """By slice sampling from 0, where the density given is 1: the interval shrinks until a point is as likely as was asked."""
    nothing, level = jnp.zeros_like(ends[0]), jnp.log(uniforms[0])

    def shrink(i: Any, state: tuple) -> tuple:
        low, high, x, done = state
        new = low + (high - low) * uniforms[i + 1]
        inside = log_density(new) >= level
        x = jnp.where(inside & ~done, new, x)
        low, high = jnp.where(new < 0, new, low), jnp.where(new < 0, high, new)
        return low, high, x, done | inside

    return jax.lax.fori_loop(0, SHRINKS, shrink, (*ends, nothing, jnp.zeros(nothing.shape, bool)))[2]
