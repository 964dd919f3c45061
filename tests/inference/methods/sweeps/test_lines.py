"""Moves along lines of weights are exact, and go where trajectories cannot."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture, kernels
from hierattn.inference.likelihood import ARRAYS, Data, attention, covariance, log_likelihood, prepare, terms
from hierattn.inference.methods.sweeps import lines
from hierattn.inference.methods.sweeps.directions import Lines, estimated, framed, lines_of
from tests.inference.drawn import outputs
from tests.inference.mutants import mutant
from tests.statistics import mean_agrees

pytestmark = pytest.mark.usefixtures("float64")
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
    return Lines(jnp.asarray([rng.permutation(S) for _ in w]), jnp.asarray(w), *each)


@pytest.fixture(scope="module", params=LAYERS)
def joint(request):
    """Scores and outputs from their joint law, for given scales: data of each replicate, latent E, and lines."""
    layer, K = LAYERS[request.param]
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        data = prepare(np.zeros((M, S, S)), N, layer, K)
        E, y = (jnp.asarray(rng.normal(size=(REPLICATES, *shape))) for shape in (data.latent_shape, (M, S, N)))

        def squares(E, y):
            root = jnp.linalg.cholesky(O**2 * jnp.moveaxis(covariance(data, E, Q), -1, 0))
            return jnp.moveaxis((root @ y) @ (root @ y).mT, 0, -1)

        return replace(data, S=jax.jit(jax.vmap(squares))(E, y)), E, some_lines(data)


def moved(module, joint):
    """E after MOVES, and terms of the likelihood before and after."""
    data, E, lines = joint
    own_S = Data(**dict.fromkeys(ARRAYS) | {"S": 0}, scores=data.scores)

    def of_one(data, E, key):
        after, found = module.move_along_lines(data, lines, E, Q, O, key, MOVES)
        return after, found, terms(data, E, Q), attention(data, E, Q), attention(data, after, Q)

    keys = jax.random.split(jax.random.key(2), REPLICATES)
    return jax.jit(jax.vmap(of_one, in_axes=(own_S, 0, 0)))(data, E, keys)


def in_law(module, joint):
    """Do functions of scores and data have the same means after the moves as before?"""
    data, E, _ = joint
    after, found, first, A, A_after = moved(module, joint)
    values = [functions(data, *now) for now in ((E, first, A), (after, found, A_after))]
    return mean_agrees(values[1] - values[0], 0.0)


def functions(data, E, found, A):
    """Of each replicate: squares and powers of E, log weights, determinants and traces."""
    flat = lambda x: np.asarray(x).reshape(REPLICATES, -1)  # noqa: E731
    E, A = flat(E), np.clip(flat(A), 1e-12, None)
    likelihood = flat(log_likelihood(replace(data, S=data.S[0]), found, O))
    sums = [(E**2).sum(1), (E**4).sum(1), np.log(A).sum(1), np.abs(E).sum(1), flat(found.logdet).sum(1), likelihood.sum(1)]
    return np.stack([*sums, *(E[:, :4] ** 2).T], axis=1)


def test_lines_leave_the_joint_law_as_it_is(joint):
    """Means of functions move by less than 0.09 of their standard deviations, and what moves does move."""
    data, E, _ = joint
    after, _, _, A, A_after = moved(lines, joint)
    assert np.mean(np.any(np.asarray(after != E), axis=(1, 2, 3))) > 0.9
    np.testing.assert_allclose(np.sum(A_after, axis=3), np.sum(A, axis=3), atol=1e-9)
    if data.allowed is not None:
        np.testing.assert_array_equal(np.asarray(A_after)[:, :, ~np.asarray(data.allowed)[..., 0]], 0)
    assert in_law(lines, joint)


MUTANTS = [
    ("(from_E[0][i] + 1)", "(from_E[0][i] + 0)"),  # the volume left out
    ("- squares / 2", "- squares / 4"),
    ("(1 + m * ww + x * wb) * (1 + x * wb) - (m * wb + x * bb) * x * ww", "(1 + m * ww + x * wb) * (1 + x * wb)"),
    ("-n / 2 * jnp.log", "-n / 3 * jnp.log"),
    ("n_wb * self.P_w + n_bb * self.P_b", "n_bb * self.P_b"),  # of the inverse that the next move starts from
    ("inside = log_density(new) >= level", "inside = log_density(new) >= level - 1"),
]


@pytest.mark.parametrize(("right", "wrong"), [MUTANTS[0], *(pytest.param(*m, marks=pytest.mark.slow) for m in MUTANTS[1:])])
def test_a_wrong_line_is_seen(joint, right, wrong):
    assert not in_law(mutant(lines, right, wrong), joint)


def singular(networks=30):
    """Outputs of one head that looks sharply: covariances are nearly singular."""
    layer = Architecture(heads=1, sigma_q=1.6)
    y = outputs(layer, np.eye(4), networks, 32)
    return prepare(y @ y.swapaxes(1, 2), 32, layer, np.eye(4))


def test_the_frame_is_a_rotation_in_which_rows_are_known_in_order():
    data = singular()
    turned = framed(data)
    for m in range(3):
        L, before = np.asarray(turned.L_q)[..., m], np.asarray(data.L_q)[..., 0]
        np.testing.assert_allclose(L @ L.T, before @ before.T, atol=1e-12)
        information = L.T @ np.linalg.inv(estimated(data)[m]) @ L
        np.testing.assert_allclose(information, np.diag(np.diag(information)), atol=1e-6 * information.max())
        assert np.all(np.diff(np.diag(information)) > 0)


def test_lines_are_flat_and_offered_where_covariances_are_nearly_singular_and_scores_can_be_solved_for():
    data = framed(singular())
    found = lines_of(data)
    precision = np.linalg.inv(estimated(data))
    bend, each = [], []
    for rows, w in zip(np.asarray(found.rows), np.asarray(found.w), strict=True):
        full = np.zeros((4, w.shape[-1]))
        full[rows] = w
        bend.append(np.einsum("im,mij,jm->m", full, precision, full) / np.sum(full**2, axis=0))
        each.append(np.einsum("mii->m", precision) / 4)
    assert np.median(bend) < 0.1 * np.median(each)
    L_q = np.moveaxis(np.asarray(data.L_q), -1, 0)
    np.testing.assert_allclose(
        np.moveaxis(np.asarray(found.L_q_inverse), -1, 0) @ L_q, np.broadcast_to(np.eye(4), L_q.shape), atol=1e-9
    )
    np.testing.assert_allclose(found.precision[..., 0], np.eye(4), atol=1e-9)
    assert lines_of(replace(data, scores=Architecture(score_function="sigmoid").scores)) is None
    assert lines_of(replace(data, S=jnp.broadcast_to(32.0 * jnp.eye(4)[..., None], data.S.shape))) is None  # nothing singular
    layer, equal = Architecture(heads=4), kernels.rbf([0.0, 1.0, 1.0, 2.0], 1.0)
    assert lines_of(framed(prepare(np.asarray(np.moveaxis(data.S, -1, 0)), 32, layer, equal))) is None
