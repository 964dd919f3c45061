"""Moves of an unknown kernel together with both scales, by Hamiltonian Monte Carlo in a few dimensions.

    p' = T_a' T_a^{-1} p,    T_a p = q^a L_a p C_a',    L_a = (1 - a) I + a L,    C_a likewise for the keys

With a = 0 the scores p are kept, Gaussians with the kernel as their parameter; with a = 1 the standard normals E are, and
scores follow the kernel; others lie between. Interwoven they mix where each alone would be slow (Yu and Meng 2011).
Trajectories run in coordinates in which what was seen while adapting has covariance one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hierattn.inference.latent.products import gram, product, transposed
from hierattn.inference.latent.unknown import Factors
from hierattn.inference.likelihood import Data, log_likelihood, terms_of

POWERS = (0.0, 0.5, 1.0)  # a
LEAPS = 5
TARGET = 0.8
FIRST_SPREAD = 0.05
SHRUNK = 0.2  # of what is seen between coordinates


class Kernel(NamedTuple):
    """Coordinates theta of the kernel, log steps of the moves, and mean and covariance of (theta, log_q, log_o) so far."""

    theta: Float[Array, " dim"]
    log_step: Float[Array, " move"]
    mean: Float[Array, " x"]
    covariance: Float[Array, "x x"]


def first(theta: Float[Array, " dim"]) -> Kernel:
    """Before anything was seen."""
    dim = len(theta) + 2
    return Kernel(theta, jnp.full(len(POWERS), -1.0), jnp.zeros(dim), FIRST_SPREAD**2 * jnp.eye(dim))


def move_kernel(
    data: Data, log_prior: Callable, E: Array, x: Array, kernel: Kernel, rng_key: Array, gain: Any, weight: Any
) -> tuple[Array, Array, Kernel]:
    """E, (theta, log_q, log_o) and what is known of steps after a trajectory for each power a.

    - log_prior: of log_q and log_o
    - gain, weight: of the latest sweep in step sizes, and in mean and covariance; zero when nothing is adapted any more
    """
    root = _root(kernel.covariance)

    def move(i: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        E, x, log_step = state
        along = Along(data, jnp.asarray(POWERS)[i])
        held = along.held(E, x)
        x, accepted = _trajectory(
            lambda x: along.log_density(held, x) + data.unknown.log_prior(x[:-2]) + log_prior(x[-2], x[-1]),
            x,
            root,
            log_step[i],
            jax.random.fold_in(rng_key, i),
        )
        return along.latent(held, x), x, log_step.at[i].add(gain * (accepted - TARGET))

    E, x, log_step = jax.lax.fori_loop(0, len(POWERS), move, (E, x, kernel.log_step))
    off = x - kernel.mean
    seen = kernel.covariance + weight * ((1 - weight) * off[:, None] * off - kernel.covariance)
    return E, x, Kernel(x[:-2], log_step, kernel.mean + weight * off, seen)


class Along(NamedTuple):
    """Moves in which T_a^{-1} p is kept (`held`), scores taken in the basis W of the keys."""

    data: Data
    a: Any

    def held(self, E: Array, x: Array) -> Float[Array, "H t r network"]:
        """What is kept."""
        L, C, _ = self._factors(x)
        p = _scaled(x[-2], L, product(self.data.L_q[None], E), C)
        return _scaled(-self.a * x[-2], _inverse(self._power(L)), p, _inverse(self._power(C)))

    def scores(self, held: Array, x: Array) -> Float[Array, "H t r network"]:
        """P."""
        L, C, _ = self._factors(x)
        return _scaled(self.a * x[-2], self._power(L), held, self._power(C))

    def latent(self, held: Array, x: Array) -> Float[Array, "H r_q r network"]:
        """E, in the frames of the data."""
        return product(transposed(self.data.L_q)[None], self._normals(held, x))

    def log_density(self, held: Array, x: Array) -> Float[Array, ""]:
        """Of outputs and of what is kept, given the parameters."""
        data, (L, C, values) = self.data, self._factors(x)
        A = data.weighing.weights(product(self.scores(held, x), transposed(data.L_k)[None]))
        Sigma = gram(product(A, values[None, ..., None])) / len(A)
        likelihood = jnp.sum(log_likelihood(data, terms_of(data.S, Sigma), jnp.exp(x[-1])))
        (t, r), number = (len(L), len(C)), held.shape[0] * held.shape[-1]
        volume = (self.a - 1) * t * r * x[-2]  # log of that by which E changes with what is kept, one head of one network
        for factor, times in ((L, r), (C, t)):
            volume += times * (_log_det(self._power(factor)) - _log_det(factor))
        return likelihood - jnp.sum(self._normals(held, x) ** 2) / 2 + number * volume

    def _normals(self, held: Array, x: Array) -> Array:
        L, C, _ = self._factors(x)
        return _scaled(-x[-2], _inverse(L), self.scores(held, x), _inverse(C))

    def _power(self, L: Array) -> Array:
        return (1 - self.a) * jnp.eye(len(L)) + self.a * L

    def _factors(self, x: Array) -> Factors:
        return self.data.unknown.factors(self.data, x[:-2])


def _scaled(log_scale: Any, left: Array, p: Array, right: Array) -> Array:
    """e^log_scale left p right', matrix by matrix."""
    return jnp.exp(log_scale) * product(product(left[None, ..., None], p), right.T[None, ..., None])


def _inverse(L: Float[Array, "t t"]) -> Float[Array, "t t"]:
    return jax.scipy.linalg.solve_triangular(L, jnp.eye(len(L)), lower=True)


def _log_det(L: Float[Array, "t t"]) -> Float[Array, ""]:
    return jnp.sum(jnp.log(jnp.diagonal(L)))


def _root(covariance: Float[Array, "x x"]) -> Float[Array, "x x"]:
    """Factor of what is seen, less of it between coordinates."""
    variance = jnp.diagonal(covariance)
    return jnp.linalg.cholesky((1 - SHRUNK) * covariance + SHRUNK * jnp.diag(variance) + 1e-10 * jnp.eye(len(variance)))


def _trajectory(
    log_density: Callable, x: Array, C: Float[Array, "x x"], log_step: Array, rng_key: Array
) -> tuple[Array, Float[Array, ""]]:
    """The end of one, or its start if that is refused, and the probability with which it was not."""
    key_momentum, key_step, key_accept = jax.random.split(rng_key, 3)
    step = jnp.exp(log_step) * jax.random.uniform(key_step, minval=0.7, maxval=1.1)
    of = jax.value_and_grad(lambda z: log_density(x + C @ z))

    def leap(i: Any, moving: tuple) -> tuple:
        """A kick (half of one at both ends), and a step unless this is the end."""
        z, momentum, before, _ = moving
        value, gradient = of(z)
        gradient = jnp.where(jnp.isfinite(gradient), gradient, 0)
        momentum = momentum + jnp.where((i == 0) | (i == LEAPS), 0.5, 1.0) * step * gradient
        return z + jnp.where(i == LEAPS, 0.0, step) * momentum, momentum, jnp.where(i == 0, value, before), value

    start = jax.random.normal(key_momentum, x.shape)
    nothing = jnp.zeros(())
    z, momentum, before, after = jax.lax.fori_loop(0, LEAPS + 1, leap, (jnp.zeros_like(x), start, nothing, nothing))
    gain = after - before + (jnp.sum(start**2) - jnp.sum(momentum**2)) / 2
    gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
    accepted = jnp.log(jax.random.uniform(key_accept)) < gain
    return jnp.where(accepted, x + C @ z, x), jnp.exp(jnp.minimum(gain, 0))
