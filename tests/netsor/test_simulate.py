"""The simulator against programs written out in NumPy, and every program of the library against its law."""

import inspect

import jax
import numpy as np
import pytest

from analysis import programs
from hierattn import Architecture, InputError, RandomInputs, network
from hierattn.netsor import Program, matrix, nonlin, vector
from hierattn.netsor import simulate as simulate_module
from hierattn.netsor.limit import Limit
from hierattn.netsor.simulate import simulate
from tests.netsor.mutants import with_a_covariance_dropped
from tests.statistics import same_distribution, same_joint_law
from tests.variants import variants

NAMES = [name for name, f in inspect.getmembers(programs, inspect.isfunction) if f.__annotations__.get("return") is Program]


def test_attention_is_the_explicit_network():
    """Width 4, where the limit is far away, against network.py: all marginals, projections, products; and scores.

    Scores of variance (1 + 2/n)^2 are told from those of width 8: 2.25 against 1.56.
    """
    p, y = simulate(jax.random.key(0), programs.attention(2, 2), 4, 10_000, 3)
    known = network.simulate(jax.random.key(1), Architecture(heads=2), RandomInputs(4, 2), 10_000, 3)
    rng = np.random.default_rng(0)
    assert same_joint_law(y, known.y, rng)
    assert same_joint_law(p[..., None], known.p.reshape(10_000, -1, 1), rng)
    wrong = simulate(jax.random.key(1), programs.attention(2, 2), 8, 10_000)[0]
    assert not same_joint_law(p[..., None], wrong[..., None], rng)


def test_a_recurrent_network_uses_one_matrix_twice():
    """Width 1, where it matters most, against NumPy, and against networks with a fresh matrix for the second step."""
    rng, n, networks = np.random.default_rng(0), 1, 20_000
    y = np.asarray(simulate(jax.random.key(0), programs.recurrent(), n, networks)[1])
    L = np.linalg.cholesky(np.array([[1, np.exp(-0.5)], [np.exp(-0.5), 1]]))

    def draw(fresh):
        W, U, again = (scale * rng.normal(size=(networks, n, n)) / np.sqrt(n) for scale in (1.2, 1.0, 1.2))
        x, s0 = L @ rng.normal(size=(networks, 2, n)), rng.normal(size=(networks, n, 1))
        s = np.tanh(W @ s0 + U @ x.swapaxes(1, 2))
        return ((again if fresh else W) @ s).swapaxes(1, 2)

    assert same_joint_law(y, draw(fresh=False), rng)
    assert not same_joint_law(y, draw(fresh=True), rng)


def test_networks_depend_on_their_number_alone(monkeypatch):
    program, key = programs.gate(), jax.random.key(4)
    p, y = simulate(key, program, 8, 300, 2)
    np.testing.assert_array_equal(simulate(key, program, 8, 5, 2)[1], y[:5])
    monkeypatch.setattr(simulate_module, "TOGETHER", 128)
    np.testing.assert_allclose(simulate(key, program, 8, 5, 2)[1], y[:5], rtol=1e-5, atol=1e-6)
    assert not same_distribution(p, np.zeros(300))


def test_all_coordinates_or_some():
    """Coordinates of one network share its scalars: more of them are i.i.d. copies, not other networks."""
    program, key = programs.gate(), jax.random.key(2)
    p, y = simulate(key, program, 16, 50, 16)
    assert (p.shape, y.shape) == ((50, 1), (50, 16))
    np.testing.assert_allclose(simulate(key, program, 16, 50, 4)[0], p, rtol=1e-5)


def test_no_recompilation_for_other_keys():
    program = programs.gate()
    simulate(jax.random.key(0), program, 8, 300)
    compiled = simulate_module._draw._cache_size()
    simulate(jax.random.key(1), program, 8, 700)
    assert simulate_module._draw._cache_size() == compiled


def test_bad_arguments():
    with pytest.raises(InputError, match="coordinates: expected at most the width 4, got 5"):
        simulate(jax.random.key(0), programs.gate(), 4, 10, 5)
    with pytest.raises(InputError, match="width: expected a positive whole number, got 0"):
        simulate(jax.random.key(0), programs.gate(), 0, 10)


def test_the_library_has_nine_programs():
    assert len(NAMES) == 9


@pytest.mark.parametrize("name", variants(NAMES, ["cross_attention"]))
def test_programs_approach_their_law(name):
    """Width 64 is not told from the law in 3,000 networks, width 2 is, and so is the law with a covariance dropped.

    analysis/claims/netsor.py has the full counts: 20,000 networks of width 256, 2,000 of width 1024.
    """
    program, networks, coordinates = getattr(programs, name)(), 3000, 2
    law = Limit(program)

    def outputs(y):
        return np.asarray(y, float).reshape(len(y), -1, coordinates)

    wide, narrow = (simulate(jax.random.key(5), program, n, networks, coordinates) for n in (64, 2))
    drawn = outputs(law.sample(jax.random.key(6), 20_000, coordinates))
    rng = np.random.default_rng(0)
    assert same_joint_law(outputs(wide[1]), drawn, rng)
    scores = law.sample_scores(jax.random.key(6), 20_000)[..., None]
    assert not program.dots or same_joint_law(wide[0][..., None], scores, rng)
    told = not same_joint_law(outputs(narrow[1]), drawn, rng)
    told |= bool(program.dots) and not same_joint_law(narrow[0][..., None], scores, rng)
    assert told
    mutant, dropped = with_a_covariance_dropped(law)
    changed = not same_joint_law(outputs(wide[1]), outputs(mutant.sample(jax.random.key(6), 20_000, coordinates)), rng)
    wrong = mutant.sample_scores(jax.random.key(6), 20_000)[..., None]
    assert changed or not same_joint_law(wide[0][..., None], wrong, rng), dropped


def test_a_deep_network_is_not_told_from_its_kernel():
    """Three layers of erf at width 64: the covariance of outputs within 5 standard errors, and not that of two layers."""
    x = vector("h", i=1)
    for layer in range(3):
        x = nonlin("erf", matrix(f"W{layer}", sigma=2.0) @ x)
    program = Program("deep", matrix("R") @ x, x=x)
    y = np.asarray(simulate(jax.random.key(0), program, 64, 2000, 16)[1], float)
    squares = (y**2).mean(axis=(1, 2))
    gap = squares.mean() - Limit(program).kappa.value[0, 0]
    assert abs(gap) < 5 * squares.std() / np.sqrt(2000) + 0.01
