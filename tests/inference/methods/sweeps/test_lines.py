"""Moves along lines of weights are exact, and go where trajectories cannot."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture, kernels
from hierattn.inference.likelihood import prepare
from hierattn.inference.methods.sweeps import lines
from hierattn.inference.methods.sweeps.directions import estimated, framed, lines_of, well_conditioned
from hierattn.layer.scores import SCORE_FUNCTIONS
from tests.inference.drawn import outputs
from tests.inference.methods.sweeps import joint_law
from tests.inference.mutants import mutant
from tests.statistics import mean_agrees
from tests.variants import variants

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(scope="module", params=joint_law.LAYERS)
def joint(request):
    """Scores and outputs from their joint law."""
    return joint_law.drawn(request.param)


def in_law(module, joint):
    """Do functions of scores and data have the same means after the moves as before?"""
    return mean_agrees(joint_law.changes(joint, module.move_along_lines)[0], 0.0)


def test_lines_leave_the_joint_law_as_it_is(joint):
    """Means of functions move by less than 0.09 of their standard deviations, and what moves does move."""
    data, E, _ = joint
    moved, after, A, A_after = joint_law.changes(joint, lines.move_along_lines)
    assert np.mean(np.any(np.asarray(after != E), axis=(1, 2, 3))) > 0.9
    np.testing.assert_allclose(np.sum(A_after, axis=3), np.sum(A, axis=3), atol=1e-9)
    if data.weighing.allowed is not None:
        np.testing.assert_array_equal(np.asarray(A_after)[:, :, ~np.asarray(data.weighing.allowed)[..., 0]], 0)
    assert mean_agrees(moved, 0.0)


MUTANTS = [
    ("(from_E[0][i] + 1)", "(from_E[0][i] + 0)"),  # the volume left out
    ("- squares / 2", "- squares / 4"),
    ("(1 + m * ww + x * wb) * (1 + x * wb) - (m * wb + x * bb) * x * ww", "(1 + m * ww + x * wb) * (1 + x * wb)"),
    ("-n / 2 * jnp.log", "-n / 3 * jnp.log"),
    ("n_wb * self.P_w + n_bb * self.P_b", "n_bb * self.P_b"),  # of the inverse that the next move starts from
    ("inside = log_density(new) >= level", "inside = log_density(new) >= level - 1"),
]


@pytest.mark.parametrize("joint", variants(joint_law.LAYERS, ["one head"]), indirect=True)
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


def test_single_precision_is_for_covariances_without_tiny_eigenvalues():
    """Of all networks: one may be too many."""
    S = np.broadcast_to(32.0 * np.eye(4), (30, 4, 4)).copy()
    one = S.copy()
    one[7, 0, 0] *= 1e-6
    assert well_conditioned(prepare(S, 32, Architecture(heads=4), np.eye(4)))
    assert not well_conditioned(prepare(one, 32, Architecture(heads=4), np.eye(4)))


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
    assert lines_of(replace(data, weighing=replace(data.weighing, function=SCORE_FUNCTIONS["sigmoid"]))) is None
    assert lines_of(replace(data, S=jnp.broadcast_to(32.0 * jnp.eye(4)[..., None], data.S.shape))) is None  # nothing singular
    layer, equal = Architecture(heads=4), kernels.rbf([0.0, 1.0, 1.0, 2.0], 1.0)
    assert lines_of(framed(prepare(np.asarray(np.moveaxis(data.S, -1, 0)), 32, layer, equal))) is None
