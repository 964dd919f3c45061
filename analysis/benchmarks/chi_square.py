"""Chi-squares a second: ours on whole arrays, JAX's gamma, and NumPy's Generator."""

import jax
import jax.numpy as jnp
import numpy as np
from timing import fastest, record

from hierattn.numerics.wishart import chi_square

NUMBER = 2**20
key, generator = jax.random.key(0), np.random.default_rng(0)
ratios = {}
for df in (3.0, 64.0):
    ours = jax.jit(lambda key, df=df: chi_square(key, jnp.float32(df), (NUMBER,)))
    jaxs = jax.jit(lambda key, df=df: 2 * jax.random.gamma(key, jnp.float32(df / 2), (NUMBER,)))
    times = fastest(
        {"hierattn": lambda: ours(key), "jax": lambda: jaxs(key), "numpy": lambda: generator.chisquare(df, NUMBER)},  # noqa: B023
        repeats=5,
    )
    print(f"{df:g} degrees of freedom, {NUMBER} draws")
    for name, seconds in times.items():
        print(f"  {name:9s} {NUMBER / seconds / 1e6:5.1f} million/s; time / ours = {seconds / times['hierattn']:.2f}")
    others = {"JAX's gamma": times["jax"], "NumPy": times["numpy"]}
    ratios |= {f"{name} / ours, {df:g} degrees": seconds / times["hierattn"] for name, seconds in others.items()}
record("chi_square", ratios)
