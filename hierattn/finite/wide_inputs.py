"""One token's conditional variance at finite width, for inputs phi(x) = x and fewer heads than keys: H numbers for each key.

Keys have inputs sqrt(r) xi_j, xi_j ~ N(0, I_n), and head a scores sqrt(r / n) <xi_j, g_a>, g_a ~ N(0, I_n). In a basis Q of all
g_a, g_a = Q B_a with B Bartlett's factor of Wishart_n(I_H), inputs are normals Z = xi Q. What is left of xi enters through the
weighted sums of heads alone, as normals e along the token's own remainder (of length rho, if it is key `own`) and a factor D
of a Wishart matrix of all other directions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hierattn.law.one_token import Heads
from hierattn.law.sampling import Recipe
from hierattn.numerics.random_numbers import normals
from hierattn.numerics.sums import split, total
from hierattn.numerics.wishart import assemble, chi_square, entries_below, factor_last


class Plan(NamedTuple):
    """What is drawn: h directions of heads, d of the remainder, if there is one; chi-squares of at least two or not."""

    h: int
    remainder: bool
    d: int
    own: int | None
    two: bool


def recipe(heads: Heads, n: int, own: int | None) -> Recipe:
    """Of a token that is key `own`, or none of its keys."""
    H = len(heads.q)
    h, d = min(H, n), min(H, max(n - H - 1, 0))
    two = min(n - h + 1, n - h if n > h else 2, n - h - d if d else 2, int(heads.dim)) >= 2
    return Recipe(variances, (Plan(h, n > h, d, own, two),), (heads, float(n)))


def variances(rng_key: Array, networks: int, plan: Plan, heads: Heads, n: Any) -> Float[Array, " network"]:
    """V of networks."""
    H, m, dtype, (h, remainder, d, own, two) = len(heads.q), len(heads.weighing.added), heads.q.dtype, plan
    key_chi, key_normal = jax.random.split(rng_key)
    df = jnp.concatenate([n - jnp.zeros(1), n - jnp.arange(h), n - h + jnp.zeros(remainder), n - h - 1 - jnp.arange(d)])
    df = jnp.concatenate([df, heads.dim + jnp.zeros(2 * H)]).astype(dtype)
    chi = chi_square(key_chi, df[:, None], (len(df), networks), two)
    r, B_diagonal, rho_squared, D_diagonal, c = split(chi, 1, h, remainder, d, 2 * H)
    tokens = m + (own is None)  # a token that is no key of its own comes last
    sizes = h * tokens, entries_below(H, h), H * remainder, entries_below(H, d)
    Z, B_below, e, D_below = split(normals(key_normal, (sum(sizes), networks), dtype), *sizes)
    Z, B, r = Z.reshape(h, tokens, networks), assemble(jnp.sqrt(B_diagonal), B_below, H), r[0] / n
    G_ii = r * (total(Z[:, m if own is None else own] ** 2) + jnp.sum(rho_squared, axis=0)) / n
    Z = Z[:, :m]
    scale = heads.q[:, None] * jnp.sqrt(G_ii * c[:H] / heads.dim * r / n)
    w = heads.weighing.weights(scale * total(Z[:, :, None] * B.swapaxes(0, 1)[:, None]))
    u = total(total(w[:, None] * Z.swapaxes(0, 1)[:, :, None]) ** 2)
    if remainder:
        others = w if own is None else w.at[own].set(0)
        C = factor_last(total(others[:, :, None] * others[:, None])).swapaxes(0, 1)
        along = total(C * e[:, None]) + (0 if own is None else w[own] * jnp.sqrt(rho_squared))
        u += along**2
    if d:
        D = assemble(jnp.sqrt(D_diagonal), D_below, H)
        u += total(total(C[:, None] * D[:, :, None]) ** 2)
    return jnp.mean(heads.o[:, None] ** 2 * c[H:] / heads.dim * r * u / n, axis=0)
