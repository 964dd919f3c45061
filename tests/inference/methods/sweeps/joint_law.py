"""Scores and outputs from their joint law for given scales, and how far moves of the scores take functions of both from it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from hierattn import Architecture, kernels
from hierattn.inference.likelihood import ARRAYS, Data, attention, covariance, log_likelihood, prepare, terms
from hierattn.inference.methods.sweeps.directions import Lines

M, S, N, Q, O = 2, 3, 5, 1.4, 0.8  # noqa: E741
REPLICATES, MOVES = 3000, 12
BIAS = np.random.default_rng(0).normal(size=(2, S, S))
LAYERS = {
    "one head": (Architecture(heads=1), kernels.equicorrelated(S, 0.3)),
    "two heads, causal, a bias each": (Architecture(heads=2, mask="causal", bias=BIAS), np.diag([1.0, 2.0, 0.5])),
}


def some_lines(data, seed=0):
    """Random lines of every kind, for data whose Sigma need not be singular."""
    rng = np.random.default_rng(seed)
    w = (
        rng.normal(size=(6, 3, M))
        * np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]] * 2)[..., None]
        * 10.0 ** rng.uniform(-2, 0, (6, 1, 1))
    )
    L_q, L_k = (np.asarray(L)[..., 0] for L in (data.L_q, data.L_k))
    solvers = np.linalg.inv(L_q), np.linalg.pinv(L_k), np.linalg.inv(L_q @ L_q.T)
    each = [jnp.asarray(x)[..., None] for x in solvers]
    return Lines(jnp.asarray([rng.permutation(S) for _ in w]), jnp.asarray(w), *each, jnp.full(M, 4.0))


def drawn(name):
    """Data of each replicate, latent E, and lines."""
    layer, K = LAYERS[name]
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        data = prepare(np.zeros((M, S, S)), N, layer, K)
        E, y = (jnp.asarray(rng.normal(size=(REPLICATES, *shape))) for shape in (data.latent_shape, (M, S, N)))

        def squares(E, y):
            root = jnp.linalg.cholesky(O**2 * jnp.moveaxis(covariance(data, E, Q), -1, 0))
            return jnp.moveaxis((root @ y) @ (root @ y).mT, 0, -1)

        return replace(data, S=jax.jit(jax.vmap(squares))(E, y)), E, some_lines(data)


def changes(joint, move):
    """By what functions change in MOVES of a move(data, lines, E, q, o, key, moves), E after them, weights before and after."""
    data, E, lines = joint
    own_S = Data(**dict.fromkeys(ARRAYS) | {"S": 0})

    def of_one(data, E, key):
        after, found = move(data, lines, E, Q, O, key, MOVES)
        return after, (terms(data, E, Q), attention(data, E, Q)), (found, attention(data, after, Q))

    keys = jax.random.split(jax.random.key(2), REPLICATES)
    after, first, last = jax.jit(jax.vmap(of_one, in_axes=(own_S, 0, 0)))(data, E, keys)
    return functions(data, after, *last) - functions(data, E, *first), after, first[1], last[1]


def functions(data, E, found, A):
    """Of each replicate: squares and powers of E, log weights, determinants and traces."""
    flat = lambda x: np.asarray(x).reshape(REPLICATES, -1)  # noqa: E731
    E, A = flat(E), np.clip(flat(A), 1e-12, None)
    likelihood = flat(log_likelihood(replace(data, S=data.S[0]), found, O))
    sums = [(E**2).sum(1), (E**4).sum(1), np.log(A).sum(1), np.abs(E).sum(1), flat(found.logdet).sum(1), likelihood.sum(1)]
    return np.stack([*sums, *(E[:, :4] ** 2).T], axis=1)
