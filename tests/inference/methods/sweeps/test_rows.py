"""Moves of parts of rows are exact, and go through weights however small."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture
from hierattn.inference.likelihood import covariance, log_likelihood, prepare, terms
from hierattn.inference.methods.sweeps import rows
from hierattn.inference.methods.sweeps.directions import lines_of
from hierattn.inference.methods.sweeps.sweep import unless_singular
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
    ("z = mass * jnp.expm1(", "z = 0.7 * mass * jnp.expm1("),
    ("A = jnp.where(head[:, None, None, None] & e_i[:, None, None], A_i, A)", ""),
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


def drops(module, q=40.0, moves=400):
    """By how much log likelihoods of networks fall in single moves, softmax being hard and Sigma far from singular."""
    layer = Architecture(heads=2, sigma_q=6.0)
    y = outputs(layer, np.eye(4), 20, 16)
    data = prepare(y @ y.swapaxes(1, 2), 16, layer, np.eye(4))
    lines = lines_of(data)

    def move(E, key):
        moved = module.move_parts_of_rows(data, lines, E, q, 1.0, key, 1)
        E, found = unless_singular((E, terms(data, E, q)), moved)
        return E, (log_likelihood(data, found, 1.0), jnp.linalg.eigvalsh(jnp.moveaxis(covariance(data, E, q), -1, 0))[:, 0])

    walk = jax.jit(lambda E, keys: jax.lax.scan(move, E, keys)[1])
    value, smallest = walk(data.drawn(jax.random.key(1)), jax.random.split(jax.random.key(2), moves))
    return -np.diff(value, axis=0)[smallest[:-1] > 1e-3]


def test_weights_that_are_all_on_one_side_move_without_rounding():
    """A slice lets likelihoods fall by a standard exponential: in 8,000 moves of a network by 30 with probability 1e-9."""
    assert np.nanmax(drops(rows)) < 30
    assert (
        np.nanmax(
            drops(mutant(rows, "less = jnp.minimum(*masses), masses[0] <= masses[1]", "less = masses[0], jnp.array(True)"))
        )
        > 1e3
    )
