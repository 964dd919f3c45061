"""Places in a frame: exact identities, and digits that are kept where tokens collapse."""

import jax
import jax.numpy as jnp
import numpy as np

from hierattn.stack.blocks import MLP, Norm
from hierattn.stack.branches import perceive
from hierattn.stack.frame import Frame, normed, one_minus_cosine, turned


def test_turning_keeps_inner_products():
    F = np.random.default_rng(0).normal(size=(5, 3, 7))
    with jax.enable_x64(True):
        L = np.asarray(turned(jnp.asarray(F)))
    assert L.shape == (5, 3, 3)
    assert np.allclose(L @ L.swapaxes(1, 2), F @ F.swapaxes(1, 2), rtol=1e-13, atol=1e-13)


def test_norms_are_those_of_the_coordinates():
    """A frame whose first direction is that of ones, against X itself."""
    rng = np.random.default_rng(0)
    n, U = 6, np.linalg.qr(np.column_stack([np.ones(6), rng.normal(size=(6, 3))]))[0].T
    U[0] *= np.sign(U[0, 0])
    F = rng.normal(size=(1, 2, 4))
    X = n**0.5 * F[0] @ U
    for norm in (Norm(eps=0.1, gain=1.5), Norm(kind="layer", eps=0.1)):
        x = X - X.mean(axis=1, keepdims=True) if norm.kind == "layer" else X
        x = norm.gain * x / np.sqrt((x**2).mean(axis=1, keepdims=True) + norm.eps)
        with jax.enable_x64(True):
            found = np.asarray(normed(jnp.asarray(F), norm, means=True))[0]
        assert np.allclose(n**0.5 * found @ U, x, rtol=1e-13, atol=1e-13)


def test_collapsed_tokens_keep_their_digits():
    """1 - cosine = 1e-10 to six digits and more, through a norm and an MLP, where differences of squares have none left."""
    angle = np.sqrt(2e-10)
    F = np.array([[[1.0, 0.0], [np.cos(angle), np.sin(angle)], [np.cos(2 * angle), np.sin(2 * angle)]]])
    exact = 2 * np.sin(np.array([angle, 2 * angle]) / 2) ** 2
    with jax.enable_x64(True):
        apart = np.asarray(one_minus_cosine(normed(jnp.asarray(F), Norm(eps=0.0), means=False)))[0]
        linear = MLP(width=None, activation="identity")
        wide = np.asarray(one_minus_cosine(perceive(jax.random.key(0), linear, jnp.asarray(F))))[0]
        drawn = np.asarray(one_minus_cosine(perceive(jax.random.key(0), MLP(width=500, activation="identity"), jnp.asarray(F))))
    assert np.allclose(apart[0, 1:], exact, rtol=1e-9)
    assert np.allclose(wide[0, 1:], exact, rtol=1e-5)
    assert np.isclose(drawn[0, 0, 2] / drawn[0, 0, 1], 4, rtol=1e-6)


def test_gram_of_a_frame():
    F = np.arange(6.0).reshape(1, 2, 3)
    assert np.array_equal(Frame(jnp.asarray(F), 5, False).gram[0], F[0] @ F[0].T)
