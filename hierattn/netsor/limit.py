"""The infinite-width law of a program (paper, Theorem 3.1): scalars p ~ N(0, kappa'), independent of the Gaussians Z.

    Cov(p_k, p_l) = E[Z^{k,1} Z^{l,1}] E[Z^{k,2} Z^{l,2}] + E[Z^{k,1} Z^{l,2}] E[Z^{k,2} Z^{l,1}]         (Isserlis)
    y = phi(Z, p)         coordinates i.i.d. given p, one p a network

Keys, chunks and the order of normals are those of `Law`: attention written as a program has the very draws of `Law`, to
rounding, as long as its kernels are definite (the Cholesky factor of K (x) K is L (x) L).
"""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hierattn.base.errors import UnsafeInputError, check_counts, check_key, unusable
from hierattn.law.sampling import CHUNK, PART, check_draws, keys_of, power_of_two
from hierattn.layer import kernels
from hierattn.netsor.covariances import METHODS, ROUNDING, Covariances
from hierattn.netsor.notation import Family
from hierattn.netsor.program import Program
from hierattn.numerics import rqmc
from hierattn.numerics import two_samples as two_level
from hierattn.numerics.random_numbers import normals

LARGEST = 2**12  # scalars, or Gaussians, of a program
REPEATS = rqmc.SHIFTS  # of the whole recursion where quasi-Monte Carlo is needed: their spread is the error of all its layers


class Estimate(NamedTuple):
    """Numbers and their errors."""

    value: np.ndarray
    error: np.ndarray


class Limit:
    """The law of a program's scalars and outputs."""

    def __init__(self, program: Program, seed: int = 0) -> None:
        most = max(len(program.dots), len(program.base))
        if most > LARGEST:
            raise UnsafeInputError(f"program: expected at most {LARGEST} scalars or vectors, got {most}; use Law for attention")
        self.program, self.runs = program, [Covariances(seed * REPEATS + k) for k in range(REPEATS)]

    def second_moments(self, us: Any, vs: Any) -> Estimate:
        """E[Z^u Z^v] of vectors of the program."""
        first, norms = self.runs[0].matrix(us, vs), [[self.runs[0](u, u) for u in side] for side in (us, vs)]
        rounding = ROUNDING[self.runs[0].method] * np.sqrt(np.outer(norms[0], norms[1]))
        if self.runs[0].method < 2:
            return Estimate(first, rounding)
        each = np.stack([first, *(run.matrix(us, vs) for run in self.runs[1:])])
        return Estimate(each.mean(axis=0), rqmc.error(each) + rounding)

    def kernel(self, family: Family) -> Estimate:
        """E[Z^u Z^v] over a family of vectors, in the order of its indices."""
        return self.second_moments(*[tuple(family.atoms.flat)] * 2)

    @property
    def method(self) -> str:
        """The least exact method that was needed."""
        return METHODS[self.runs[0].method]

    @cached_property
    def kappa(self) -> Estimate:
        """Covariance of the Gaussians that the outputs are made of."""
        return self.second_moments(self.program.base, self.program.base)

    @cached_property
    def kappa_prime(self) -> Estimate:
        """Covariance of the scalars."""
        left, right = ([getattr(p, side) for p in self.program.dots] for side in ("left", "right"))
        (ll, e_ll), (rr, e_rr), (lr, e_lr) = map(self.second_moments, (left, right, left), (left, right, right))
        return Estimate(ll * rr + lr * lr.T, e_ll * abs(rr) + abs(ll) * e_rr + e_lr * abs(lr.T) + abs(lr) * e_lr.T)

    @cached_property
    def L(self) -> np.ndarray:
        """A factor of kappa."""
        return kernels.factor(self.kappa.value)

    @cached_property
    def L_prime(self) -> np.ndarray:
        """A factor of kappa'."""
        return kernels.factor(self.kappa_prime.value) if self.program.dots else np.zeros((0, 0))

    def sample_scores(self, rng_key: Array, networks: int) -> Array:
        """Scalars (network, dot): those behind `sample` with the same key."""
        return jnp.concatenate([p for _, p in self._chunks(rng_key, networks)])[:networks]

    def sample(self, rng_key: Array, networks: int, coordinates: int = 1, p: Any = None) -> Array:
        """Outputs (network, letters, coordinate); of networks whose scalars p (network, dot) are given, if they are."""
        check_draws(self.L.dtype, rng_key, self.program.y.atoms.size, networks=networks, coordinates=coordinates)
        return jnp.concatenate([y for _, y in self.stream(rng_key, networks, coordinates, p)])

    def stream(self, rng_key: Array, networks: int, coordinates: int = 1, p: Any = None) -> Iterator[tuple[Array, Array]]:
        """Scalars and outputs of `sample`, in parts that need little memory."""
        L, draw = jnp.asarray(self.L), partial(_draw, self.program, rng_key)
        check_counts(coordinates=coordinates)
        for c, q in self._chunks(rng_key, networks, p):
            part = min(len(q), power_of_two(PART // (L.shape[1] * coordinates)))
            for first in range(c * len(q), min((c + 1) * len(q), networks), part):
                drawn = draw(c, q, L, (first - c * len(q)) // part, part, coordinates)
                yield drawn[0][: networks - first], drawn[1][: networks - first]

    def _chunks(self, rng_key: Array, networks: int, given: Any = None) -> Iterator[tuple[int, Array]]:
        check_key(rng_key)
        check_counts(networks=networks)
        if given is not None and np.shape(given) != (networks, len(self.program.dots)):
            raise unusable("p", f"shape {(networks, len(self.program.dots))}", np.shape(given))
        L = jnp.asarray(self.L_prime)
        chunk = power_of_two(CHUNK // max(1, L.shape[1]))
        for c in range(-(-networks // chunk)):
            if given is None:
                yield c, normals(keys_of(rng_key, c).scores, (chunk, L.shape[1]), L.dtype) @ L.T
            else:
                p = jnp.asarray(given[c * chunk : (c + 1) * chunk], L.dtype)
                yield c, jnp.pad(p, [(0, chunk - len(p)), (0, 0)])

    def expect(self, p: Any, average: Callable[[Array], Any], points: int = 2**12) -> Any:
        """E[psi(y) | p] a network: `average` over quasi-random coordinates of its outputs (1, letters, coordinate)."""
        Z = jnp.asarray(self.L @ rqmc.normal_points((self.L.shape[1],), points).T)
        one = jax.jit(lambda q: jax.tree.map(jnp.squeeze, average(self.program.evaluate(q, Z)[None])))
        return jax.lax.map(one, jnp.asarray(p), batch_size=32)

    @cached_property
    def linear(self) -> bool:
        """Are the outputs linear in the Gaussians, so that y | p ~ N(0, Sigma(p))?"""
        draw, program = np.random.default_rng(0).normal, self.program
        with jax.enable_x64(True):
            p, (Z, X) = jnp.asarray(draw(size=len(program.dots))), jnp.asarray(draw(size=(2, len(program.base), 7)))
            gap = program.evaluate(p, Z - 2 * X) - program.evaluate(p, Z) + 2 * program.evaluate(p, X)
        return bool(np.abs(gap).max() < 1e-12)

    def moments(self, seed: int = 0) -> dict[str, Estimate]:
        """Of the outputs, indices as one axis: see `two_level.moments`."""
        found = two_level.moments(self.program.evaluate, self.L, self.L_prime, self.program.y.atoms.size, seed)
        return {name: Estimate(*both) for name, both in found.items()}

    def factor(self, p: Any) -> Array:
        """F (letters, m) with Sigma(p) = F F', where outputs are linear: what becomes of the columns of L."""
        return self.program.evaluate(p, jnp.asarray(self.L, jnp.result_type(p)))


@partial(jax.jit, static_argnames=("program", "part", "coordinates"))
def _draw(program: Program, rng_key: Array, c: Any, p: Array, L: Array, j: Any, part: int, coordinates: int) -> Any:
    p = jax.lax.dynamic_slice_in_dim(p, j * part, part)
    z = normals(jax.random.fold_in(keys_of(rng_key, c).outputs, j), (part, L.shape[1], coordinates), L.dtype)
    return p, jax.vmap(program.evaluate)(p, L @ z)
