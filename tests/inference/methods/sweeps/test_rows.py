"""Moves of parts of rows are exact, and go through weights however small."""

import jax
import numpy as np
import pytest

from hierattn.inference.methods.sweeps import rows
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
    return mean_agrees(joint_law.changes(joint, module.move_parts_of_rows)[0], 0.0)


def test_parts_of_rows_leave_the_joint_law_as_it_is(joint):
    """Means of functions move by less than 0.09 of their standard deviations, and what moves does move."""
    _, E, _ = joint
    changes, after, A, A_after = joint_law.changes(joint, rows.move_parts_of_rows)
    assert np.mean(np.any(np.asarray(after != E), axis=(1, 2, 3))) > 0.9
    np.testing.assert_allclose(np.sum(A_after, axis=3), np.sum(A, axis=3), atol=1e-9)
    assert mean_agrees(changes, 0.0)


MUTANTS = [
    ("centre = -dot(u, times(E_h, g)) * spread**2 / q", "centre = -dot(u, times(E_h, g)) * spread**2 / (2 * q)"),
    ("spread = q / jnp.sqrt(dot(u, u) * dot(g, g))", "spread = 0.8 * q / jnp.sqrt(dot(u, u) * dot(g, g))"),
    ("z = mass * jnp.expm1(d)", "z = 0.7 * mass * jnp.expm1(d)"),
    ("A = jnp.where(head[:, None, None, None] & e_i[:, None, None], A + along * x, A)", ""),
    ("return E, A, plane.inverse(P, x)", "return E, A, P"),
    ("level, angle = jnp.log(uniforms[0])", "level, angle = jnp.log(uniforms[0]) - 1"),
]


@pytest.mark.parametrize("joint", variants(joint_law.LAYERS, ["one head"]), indirect=True)
@pytest.mark.parametrize(("right", "wrong"), [MUTANTS[0], *(pytest.param(*m, marks=pytest.mark.slow) for m in MUTANTS[1:])])
def test_a_wrong_part_is_seen(joint, right, wrong):
    assert not in_law(mutant(rows, right, wrong), joint)


def test_parts_of_rows_are_single_keys_or_any_but_none_and_all():
    parts = np.asarray(rows.some_keys(jax.random.uniform(jax.random.key(0), (4000, 4 + 3))))
    sizes = np.bincount(parts.sum(axis=1), minlength=5) / len(parts)
    assert sizes[0] == sizes[4] == 0
    # single: half, and of the others a quarter, those without a further one of two keys; standard error 0.008
    np.testing.assert_allclose(sizes[1:4], [1 / 2 + 1 / 8, 1 / 4, 1 / 8], atol=0.04)
    np.testing.assert_allclose(parts.mean(axis=0), np.arange(5) @ sizes / 4, atol=0.04)
