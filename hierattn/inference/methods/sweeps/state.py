"""Where chains of sweeps are, what is kept of them, and how steps follow what chains meet while they adapt."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from hierattn.inference.latent.latents import Latents, main
from hierattn.inference.likelihood import Data, terms_and_gradient

TARGET = 0.9  # acceptance rate that step sizes are tuned to; at 0.8 five times more trajectories diverge
ASTRAY = 20.0  # by how much more than other rejections one for an energy astray shortens steps
FOLLOWED = 0.05  # weight of the latest sweep, at most, in mean squares


class State(NamedTuple):
    """Where a chain is: scores as standard normals, log parameters, log step sizes of networks and orbits, sweeps done.

    - square: mean squares of E, over heads and, where `slope` is None, over columns
    - slope: mean squares of the likelihood's gradient in E; None where there are no trajectories of everything
    - kernel: where an unknown kernel is; None for one that is known
    - joint: what trajectories of everything are tuned by; None where there are none
    """

    E: Latents  # (H, r_q, r, network), or `Latent`
    log_q: Float[Array, ""]
    log_o: Float[Array, ""]
    log_step: Float[Array, " network"]
    log_orbit_step: Float[Array, " orbit"]
    square: Float[Array, "r_q m_or_1 network"]
    sweep: Any
    kernel: Any = None  # `Kernel`
    joint: Any = None  # `Joint`
    slope: Any = None  # (r_q, m, network)

    @property
    def variance(self) -> Float[Array, "r_q m_or_1 network"]:
        """That steps are proportional to the roots of: between that of E and that of one number given all others."""
        return self.square if self.slope is None else jnp.sqrt(self.square / (1 + self.slope))


class Draws(NamedTuple):
    """What is kept of sweeps, (chain, sweep), and theta (chain, sweep, dim) of an unknown kernel.

    Sigma (chain, record, t, t, network) of some, once in SIGMA_EVERY at most.
    """

    log_q: Any
    log_o: Any
    log_density: Any
    acceptance: Any
    diverged: Any
    theta: Any
    Sigma: Any


class Prior(NamedTuple):
    """Priors of the two scales, as distributions; value_scale is counted in units of `unit`."""

    score_scale: Any
    value_scale: Any
    unit: Any

    def of_log(self, log_q: Any, log_o: Any) -> Any:
        """Log density of the logarithms; distributions inside jit do not look at their support themselves."""
        q, o = jnp.exp(log_q), jnp.exp(log_o) * self.unit
        inside = self.score_scale.support(q) & self.value_scale.support(o)
        return jnp.where(inside, self.score_scale.log_prob(q) + self.value_scale.log_prob(o) + log_q + log_o, -jnp.inf)


def steps_after(log_step: Array, probability: Array, diverged: Array, gain: Any) -> Float[Array, " network"]:
    """Steps for acceptance TARGET; where energies went astray e times shorter at most, for early on that says little."""
    return log_step + gain * (probability - TARGET) - jnp.minimum(gain, FOLLOWED) * ASTRAY * diverged


def followed(data: Data, state: State, weight: Any) -> State:
    """The same state, with mean squares of E, and of the likelihood's gradient where they count, as of now."""

    def mean(before: Array, x: Array) -> Array:
        return before + weight * (jnp.mean(x**2, axis=(0, 2) if before.shape[1] == 1 else 0).reshape(before.shape) - before)

    state = state._replace(square=jnp.clip(mean(state.square, main(state.E)), 1e-10, 1))
    if state.slope is None:
        return state
    gradient = main(terms_and_gradient(data, state.E, jnp.exp(state.log_q), jnp.exp(state.log_o))[1])
    return state._replace(slope=mean(state.slope, jnp.where(jnp.isfinite(gradient), gradient, 0)))
