"""Moves of score_scale, scores following it, leave the joint law as it is; those that outputs do not notice follow."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture
from hierattn.inference.likelihood import prepare
from hierattn.inference.methods.sweeps import orbits
from hierattn.inference.methods.sweeps.directions import Lines
from hierattn.inference.methods.sweeps.state import Prior
from tests.inference.methods.sweeps import test_sweep as joint_law
from tests.inference.mutants import mutant
from tests.variants import variants

pytestmark = pytest.mark.usefixtures("float64")
BIAS = np.random.default_rng(0).normal(size=(2, joint_law.S, joint_law.S))
LAYERS = {
    "two heads": Architecture(heads=2),
    "causal, a bias each": Architecture(heads=2, mask="causal", bias=BIAS),
}


@pytest.fixture(scope="module", params=variants(LAYERS, ["causal, a bias each"]))
def joint(request):
    """Parameters, scores and outputs from their joint law, and what solves for scores."""
    with jax.enable_x64(True):
        layer = LAYERS[request.param]
        data = prepare(joint_law.EMPTY, joint_law.N, layer, joint_law.K)
        L_q, L_k = (np.asarray(L)[..., 0] for L in (data.L_q, data.L_k))
        each = (jnp.asarray(x)[..., None] for x in (np.linalg.inv(L_q), np.linalg.pinv(L_k), np.linalg.inv(L_q @ L_q.T)))
        return joint_law.drawn_joint(layer), Lines(None, None, *each, jnp.array([3.0, 4.0, 5.0]))


def in_law(module, joint, which, hidden=True):
    """Do functions of state and data have the same means after moves along an orbit as before?"""
    drawn, lines = joint

    def move(data, prior, state, found, key, normals, uniforms):
        random = which, normals[0], jnp.log(uniforms[0])
        return module.move_along_orbit(data, lines if hidden else None, Prior(*prior), state, found, *random)[:2]

    return joint_law.in_law(drawn, move)


@pytest.mark.parametrize("hidden", [False, True])
def test_moves_along_every_orbit_leave_the_joint_law_as_it_is(joint, hidden):
    assert all(in_law(orbits, joint, which, hidden) for which in range(len(orbits.POWERS)))


MUTANTS = [  # one of each kind every time, the others by `make verify`
    (False, "return E * jnp.exp(less), less * E.size", "return E * jnp.exp(less), 0.0"),
    (True, "(jnp.sum(follows) - E.size) * move", "-E.size * move"),
]
MORE_MUTANTS = [
    (False, "- networks * data.n * t * state.log_o", "- networks * data.n * state.log_o"),
    (True, "(beyond < 0) | jnp.isinf(seen)", "beyond < 1"),  # scores pass the distance
    (True, "E = jnp.exp(-move) * (E", "E = jnp.exp(-move / 2) * (E"),
    (True, "LEAST = 1.0", "LEAST = -1.0"),
]
MUTANTS += [pytest.param(*each, marks=pytest.mark.slow) for each in MORE_MUTANTS]


@pytest.mark.parametrize("joint", ["causal, a bias each"], indirect=True)
@pytest.mark.parametrize(("hidden", "right", "wrong"), MUTANTS)
def test_a_wrong_orbit_is_seen(joint, hidden, right, wrong):
    assert not in_law(mutant(orbits, right, wrong), joint, 1, hidden)


def test_scores_that_outputs_do_not_notice_follow_and_others_stay(joint):
    """Differences to the largest score of a row stay, or are stretched beyond the distance."""
    (data, state, _), lines = joint
    one = replace(data, S=data.S[0])
    state = jax.tree.map(lambda x: x[0], state)
    q, move = jnp.exp(state.log_q), 0.3
    E, _ = orbits._where_hidden(one, lines, state, 2, move)
    before, after = (scores(one, *x) for x in ((state.E, q), (E, q * np.exp(move))))
    seen = before if one.allowed is None else np.where(one.allowed, before, -np.inf)
    top = seen.argmax(axis=2)[:, :, None]
    d = np.maximum(np.array([3.0, 4.0, 5.0]) + orbits.FURTHER[2], orbits.LEAST)
    off, off_after = (x - np.take_along_axis(x, top, axis=2) for x in (before, after))
    follows = (off < -d) | np.isneginf(seen)
    assert 0 < follows.mean() < 1
    np.testing.assert_allclose(off_after, np.where(follows, -d + (off + d) * np.exp(move), off), atol=1e-9)


def scores(data, E, q):
    """By their definition, up to a constant of a row, in NumPy."""
    return np.asarray(q * np.einsum("icm,hcrm,jrm->hijm", *(np.asarray(x) for x in whole(data, E))) + data.weighing.added)


def whole(data, E):
    """Factors of queries, latents, and factors of keys, for each network."""
    L_q, L_k = (np.broadcast_to(L, (*L.shape[:2], joint_law.M)) for L in (data.L_q, data.L_k))
    return L_q, E, L_k
