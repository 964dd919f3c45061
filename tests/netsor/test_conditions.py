"""Every condition of the theorem: a program that breaks it is refused, and told which one, where, and what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import InputError
from hierattn.netsor import Program, dot, matrix, nonlin, output, vector
from hierattn.netsor.limit import Limit
from hierattn.netsor.simulate import simulate


def mix(p, v):
    return jax.nn.softmax(p) @ v


def pieces():
    x = nonlin("relu", vector("h", i=2))
    Q, K, V = matrix("Q"), matrix("K"), matrix("V")
    return x, Q, K, V, dot(Q @ x, K @ x.at(i="j"))


def reused_in_a_product():
    _, _, K, _, p = pieces()
    v = K @ vector("g", j=2)
    return Program("reuse", output(mix, p, v, axes="i"), p=p, v=v)


def reused_on_another_vector():
    x, Q, _, _, p = pieces()
    return Program("reuse", output(mix, p, Q @ nonlin("erf", x).at(i="j"), axes="i"), p=p)


def one_matrix_on_both_sides():
    x, Q, *_ = pieces()
    return dot(Q @ x, Q @ x.at(i="j"))


def one_of_a_family_on_both_sides():
    x, Q = nonlin("relu", vector("h", i=2)), matrix("Q", a=2)
    return dot(Q @ x, Q.at(a="b") @ x.at(i="j"))


def fed_back():
    x, _, _, V, p = pieces()
    return matrix("U") @ output(mix, p, V @ x.at(i="j"), axes="i")


def fed_back_through_a_function():
    x, _, _, V, p = pieces()
    return nonlin("relu", output(mix, p, V @ x.at(i="j"), axes="i"))


def function_of_scalars():
    x, _, _, V, p = pieces()
    return nonlin(lambda g, q: g * q, V @ x, p)


def function_over(phi, *more):
    return lambda: nonlin(phi, *[vector(name, i=2) for name in ("h", *more)])


def output_over(phi):
    def build():
        x, _, _, V, p = pieces()
        return output(phi, p, V @ x.at(i="j"), axes="i")

    return build


BROKEN = {
    "reused in a product": (reused_in_a_product, "v^j: expected K to be used in p^{i,j} alone (fresh score matrices)"),
    "reused on another vector": (reused_on_another_vector, "(fresh score matrices), got another product with Q; use a fresh"),
    "both sides": (one_matrix_on_both_sides, "<Q relu(h^i), Q relu(h^j)> / sqrt(n): expected two different matrices (two mat"),
    "both sides, families": (one_of_a_family_on_both_sides, "expected two different matrices (two matrices), got Q^1 twice"),
    "no product": (lambda: dot(vector("h"), matrix("Q") @ vector("g")), "expected factors W x (two matrices)"),
    "transpose": (lambda: matrix("W", i=2).T, "W^i.T: expected a matrix that acts from the left (no transposes)"),
    "from the right": (lambda: vector("h") @ matrix("W"), "h @ W: expected a matrix that acts from the left (no transposes)"),
    "feedback": (fed_back, "U @: expected vectors that depend on no dot product (no feedback), got mix(<Q relu(h^i)"),
    "feedback, function": (fed_back_through_a_function, "relu: expected vectors that depend on no dot product (no feedback)"),
    "scalars": (function_of_scalars, "(no feedback), got <Q relu(h^i), K relu(h^j)> / sqrt(n); end the program there"),
    "softmax": (function_over(jax.nn.softmax), "softmax: expected a function of one coordinate at a time (coordinatewise)"),
    "norm": (function_over(lambda x: x / jnp.linalg.norm(x, axis=-1, keepdims=True)), "(coordinatewise), got one whose coord"),
    "mean": (function_over(lambda x: x - x.mean(-1, keepdims=True)), "(coordinatewise)"),
    "position": (function_over(lambda x: x * jnp.arange(1, x.shape[-1] + 1)), "(coordinatewise)"),
    "order": (function_over(jnp.sort), "sort: expected a function of one coordinate at a time (coordinatewise)"),
    "one number": (function_over(lambda x: x.sum()), "(coordinatewise)"),
    "two": (function_over(lambda x, y: x * y.mean(), "g"), "(coordinatewise)"),
    "output": (output_over(lambda p, v: jax.nn.softmax(p @ v, axis=-1)), "phi: expected a function of one coordinate"),
    "jump": (function_over(jnp.sign), "sign: expected a function without jumps (pseudo-Lipschitz), got a jump of 2"),
    "shifted jump": (function_over(lambda x: x + (x > 0.3)), "(pseudo-Lipschitz), got a jump of 1"),
    "growth": (function_over(jnp.exp), "exp: expected a function that grows like a power at most (pseudo-Lipschitz)"),
    "jump in a score": (output_over(lambda p, v: (p > 0) @ v), "without jumps (pseudo-Lipschitz)"),
    "untraceable": (function_over(lambda x: x if x.sum() > 0 else -x), "a function of JAX arrays whose last axis"),
}


MISTAKES = {
    "letters": (lambda: matrix("W", i=2) @ vector("h", i=3), "W^i h^i: expected one length of the letter i, got 2 and 3"),
    "two matrices": (lambda: matrix("O") @ matrix("V"), "O @ V: expected a vector on the right, got a matrix; write O @ ("),
    "long letter": (lambda: matrix("W", ab=2), "axes: expected single letters, got ab"),
    "no length": (lambda: matrix("W", i=0), "i: expected a positive whole number, got 0"),
    "no such letter": (lambda: vector("h", i=2).at(k="j"), "at: expected a letter of h^i, got 'k'"),
    "covariance": (lambda: vector("h", [[1.0, 2.0], [2.0, 1.0]], i=2), "covariance of h: expected a positive semidefinite"),
    "covariance's shape": (lambda: vector("h", np.eye(2), i=3), "covariance of h: expected shape (3, 3), got (2, 2)"),
    "sigma": (lambda: matrix("W", sigma=-1.0), "sigma of W: expected a finite number that is not negative, got -1"),
    "axes": (lambda: output(lambda v: v, vector("h", i=2)), "axes: expected 1 letters for outputs of shape (2,), got ''"),
    "scalars alone": (lambda: output(lambda p: p, pieces()[-1]), "phi: expected vectors, and scalars if any, got Scalars"),
    "a matrix in an output": (lambda: output(mix, matrix("W"), vector("h")), "mix: expected vectors, and scalars if any"),
    "a matrix in a sum": (lambda: vector("h") + matrix("W"), "+: expected vectors, got W of type Matrices"),
    "names": (lambda: Program("twice", matrix("W") @ (matrix("W") @ vector("h"))), "names: expected a name of its own for ev"),
    "activation": (lambda: nonlin("selu", vector("h")), "activation: expected a function or one of identity"),
}


@pytest.mark.parametrize(("build", "words"), [*BROKEN.values(), *MISTAKES.values()], ids=[*BROKEN, *MISTAKES])
def test_a_broken_condition_or_a_mistake_is_named(build, words):
    with pytest.raises(InputError) as raised:
        build()
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_allowed():
    """Ordinary matrices may be used twice, score matrices by several scores, factors of scores by outputs."""
    x, _, K, V, p = pieces()
    q = dot(matrix("R") @ x, K @ x.at(i="j"))
    k, v = K @ x.at(i="j"), V @ nonlin("erf", V @ x.at(i="j"))
    y = output(lambda p, q, k, v: jax.nn.softmax(p + q) @ (k + v), p, q, k, v, axes="i")
    program = Program("allowed", y, p=p, q=q)
    assert len(program.dots) == 8
    assert np.all(np.isfinite(Limit(program).sample(jax.random.key(0), 3, 2)))
    assert simulate(jax.random.key(0), program, 8, 3, 2)[1].shape == (3, 2, 2)
    for phi in (jnp.abs, jnp.tanh, lambda z: z**3, lambda z: jnp.where(z > 1, z - 1, 0), lambda z: jnp.sqrt(1 + z**2)):
        nonlin(phi, x)


def test_equal_covariances_do_not_make_vectors_the_same():
    C = np.eye(2)
    u, v = vector("u", C, i=2), vector("v", C, i=2)
    program = Program("two", output(lambda u, v: u + v, u, v, axes="i"))
    np.testing.assert_array_equal(Limit(program).kappa.value, np.eye(4))
    y = np.asarray(simulate(jax.random.key(0), program, 64, 200, 64)[1], float)
    assert abs((y**2).mean() - 2) < 5 * np.sqrt(2 * 4 / y.size)


def test_a_program_never_changes():
    program = Program("linear", matrix("W") @ vector("h"))
    with pytest.raises(AttributeError, match="a program never changes"):
        program.title = "another"
    with pytest.raises(TypeError):
        program.names[program.y] = "z"
    with pytest.raises(AttributeError):
        program.y.form = "z"
