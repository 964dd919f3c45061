"""What the theorem asks of a function (THEORY section 3): one coordinate at a time, no jumps, growth like a power at most."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hierattn.base.errors import unusable
from hierattn.layer.activations import ACTIVATIONS

COORDINATES, LINES, POINTS, REACH, FAR = 5, 3, 4097, 9.0, 1e3
KNOWN = {activation.phi for activation in ACTIVATIONS.values()}

Kinds = tuple[tuple[str, tuple[int, ...]], ...]  # of arguments: ("vector" or "scalar", shape without coordinates)


@lru_cache(maxsize=256)
def check_function(name: str, phi: Callable, kinds: Kinds) -> tuple[int, ...]:
    """The shape of phi's values, coordinates left out, if phi is what the theorem asks for."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x = [jnp.asarray(rng.normal(size=(*shape, COORDINATES) if kind == "vector" else shape)) for kind, shape in kinds]
        try:
            shape = jax.eval_shape(phi, *x).shape
            whole = np.asarray(phi(*x))
            each = [np.asarray(phi(*_at(c, x, kinds))) for c in range(COORDINATES)]
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            got = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            raise unusable(name, "a function of JAX arrays whose last axis is the coordinates", got) from error
    alike = shape[-1:] == (COORDINATES,) and {part.shape for part in each} == {(*shape[:-1], 1)}
    if not alike or not np.allclose(whole, np.concatenate(each, axis=-1), rtol=1e-9, atol=1e-12):
        expected = "a function of one coordinate at a time (coordinatewise)"
        remedy = "softmax, norms and means over letters are allowed, over coordinates they are not"
        raise unusable(name, expected, "one whose coordinates depend on each other", remedy)
    if phi not in KNOWN:
        _check_growth(name, phi, x, rng)
    return shape[:-1]


def _at(c: int, x: list[Any], kinds: Kinds) -> list[Any]:
    """The arguments with coordinate c alone."""
    return [u[..., c : c + 1] if kind == "vector" else u for u, (kind, _) in zip(x, kinds, strict=True)]


def _check_growth(name: str, phi: Callable, x: list[Any], rng: np.random.Generator) -> None:
    """Along random lines: finite far out, and no bend that stays as high when it is looked at more closely."""

    @jax.jit
    def along(line: list[Any], t: Any) -> Any:
        return jax.vmap(lambda s: jnp.sum(phi(*(u + s * v for u, v in zip(x, line, strict=True)))[..., 0]))(t)

    for _ in range(LINES):
        with jax.enable_x64(True):
            line = [jnp.asarray(rng.normal(size=u.shape)) for u in x]
            far = np.asarray(along(line, jnp.linspace(-FAR, FAR, POINTS)))
            left, right, bends = -REACH, 1.03 * REACH, []  # not symmetric: a jump at 0 must not hide on a point
            for _ in range(3):
                t = np.linspace(left, right, POINTS)
                bend = np.abs(np.diff(np.asarray(along(line, jnp.asarray(t))), 2))
                bends.append(bend.max())
                left, right = t[bend.argmax()], t[bend.argmax() + 2]
        if not np.all(np.isfinite(far)):
            got, expected = f"NaN or infinity at arguments of size {FAR:g}", "a function that grows like a power at most"
            raise unusable(name, f"{expected} (pseudo-Lipschitz)", got, "clip its argument")
        if bends[2] > 0.1 * bends[0] > 1e-9 * np.abs(far).max():
            got = f"a jump of {bends[2]:.3g}"
            raise unusable(name, "a function without jumps (pseudo-Lipschitz)", got, "make it continuous")
