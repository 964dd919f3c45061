"""Dot products that share matrices, with their covariances found in networks of finite width."""

import jax
import numpy as np

from hierattn import kernels
from hierattn.netsor import Program, dot, matrix, nonlin, output, vector
from hierattn.netsor.limit import Limit
from hierattn.netsor.simulate import simulate


def gate(p, q, g):
    return (p + q) * g


def crossed():
    """p = <A x, B z> and q = <B x, A z>: two matrices, each on both sides of one scalar or the other."""
    h = vector("h", kernels.equicorrelated(2, 0.6), i=2)
    x = nonlin("erf", h)
    A, B, V = matrix("A", sigma=1.3), matrix("B"), matrix("V")
    p = dot(A @ x.at(i=0), B @ x.at(i=1))
    q = dot(B @ x.at(i=0), A @ x.at(i=1))
    return Program("crossed", output(gate, p, q, V @ x.at(i=0)), x=x, p=p, q=q)


def score_products(program, width, networks, seed):
    """Largest gap between E[p_k p_l] found and in the law, in standard errors; that error; and what the law says across.

    Last, the largest gap from a law that knows the first term of Isserlis only.
    """
    law = Limit(program)
    p = np.asarray(simulate(jax.random.key(seed), program, width, networks)[0], float)
    products = np.einsum("mk,ml->mkl", p, p)
    mean, error = products.mean(axis=0), products.std(axis=0, ddof=1) / np.sqrt(networks)
    left, right = ([getattr(dot, side) for dot in program.dots] for side in ("left", "right"))
    first = law.second_moments(left, left).value * law.second_moments(right, right).value
    half = len(p[0]) // 2
    across = np.abs(law.kappa_prime.value[:half, half:]).max()
    gaps = [float((np.abs(mean - C) / error).max()) for C in (law.kappa_prime.value, first)]
    return gaps[0], float(error.max()), float(across), gaps[1]
