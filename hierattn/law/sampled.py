"""What can be drawn from any law of networks, `Law` and `FiniteWidth` alike."""

import math
from collections.abc import Iterator

import jax.numpy as jnp
from jaxtyping import Array, Float

from hierattn.law import one_token
from hierattn.law.sampling import Networks, Source, check_draws, chunks, draw_factors, draw_networks


class Sampled(Source):
    """A law that can be drawn from."""

    def sample(self, rng_key: Array, networks: int, coordinates: int = 1) -> Float[Array, "network q coordinate"]:
        """Outputs (network, token, coordinate): scores redrawn for every network, shared by its coordinates."""
        check_draws(self.dtype, rng_key, self.shape[0], networks=networks, coordinates=coordinates)
        return jnp.concatenate([drawn.y for drawn in draw_networks(self, rng_key, networks, coordinates)])

    def stream(self, rng_key: Array, networks: int, coordinates: int = 1) -> Iterator[Networks]:
        """The draws of `sample` in parts that need little memory: outputs y, the scores p behind them, factors F of Sigma."""
        check_draws(self.dtype, rng_key, 0, networks=networks, coordinates=coordinates)
        check_draws(self.dtype, rng_key, self.shape[0], coordinates=coordinates)
        return draw_networks(self, rng_key, networks, coordinates)

    def sample_scores(self, rng_key: Array, networks: int) -> Float[Array, "network H q k"]:
        """Scores (network, head, query, key): those behind `sample` with the same key."""
        check_draws(self.dtype, rng_key, self.layer.heads * math.prod(self.shape), networks=networks)
        return jnp.concatenate([chunk.p for chunk in chunks(self, rng_key, networks)])[:networks]

    def sample_Sigma(self, rng_key: Array, networks: int) -> Float[Array, "network q q"]:
        """Conditional covariances Sigma (network, token, token): those behind `sample` with the same key."""
        check_draws(self.dtype, rng_key, self.shape[0] ** 2, networks=networks)
        factors = (draw_factors(chunk.law, chunk.keys.values, chunk.p) for chunk in chunks(self, rng_key, networks))
        return jnp.concatenate([F @ F.mT for F in factors])[:networks]

    def sample_variances(self, rng_key: Array, networks: int, token: int = 0) -> Float[Array, " network"]:
        """Conditional variances v = Sigma_ii of one token, by a shortcut that draws nothing else (so not those of `sample`)."""
        check_draws(self.dtype, rng_key, 1, networks=networks)
        return jnp.concatenate(list(one_token.stream(self, rng_key, networks, token)))
