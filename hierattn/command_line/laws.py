"""The commands that print a law, draw from it or from finite networks, and inspect outputs. Heavy imports wait."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from hierattn.command_line.console import notice, print_record, progress
from hierattn.command_line.options import (
    ActivationName,
    Force,
    Json,
    MethodName,
    Out,
    Scores,
    Seed,
    Token,
    build_kernel,
    build_layer,
    build_observations,
    takes,
)

MANY = 128  # tokens from which a distribution takes more than some seconds


class Draws(NamedTuple):
    """How many networks are drawn, and the file they are written to."""

    out: Path
    networks: int
    coordinates: int
    scores: bool
    force: bool
    seed: int
    as_json: bool

    def write(self, stream: Callable[..., Iterator[Any]], law: Any, origin: dict[str, Any]) -> None:
        """Draw networks from a stream, write them with their provenance, and say so."""
        from hierattn.base.files.writing import write_netcdf
        from hierattn.base.provenance import provenance

        write_netcdf(self.out, self.shapes(law), self.parts(stream), provenance(self.seed, **origin), self.force)
        told = {"out": str(self.out), "networks": self.networks, "coordinates": self.coordinates, "seed": self.seed}
        print_record(f"{law} -> {self.out}", told, self.as_json)

    def shapes(self, law: Any) -> dict[str, dict[str, int]]:
        """Variable -> dimension -> length."""
        queries, keys = law.shape
        shapes = {"outputs": {"network": self.networks, "token": queries, "coordinate": self.coordinates}}
        if self.scores:
            shapes["scores"] = {"network": self.networks, "head": law.layer.heads, "query": queries, "key": keys}
        return shapes

    def parts(self, stream: Callable[..., Iterator[Any]]) -> Iterator[dict[str, Any]]:
        """Networks as they are drawn."""
        import jax

        with progress("networks", self.networks) as advance:
            for drawn in stream(jax.random.key(self.seed), self.networks, self.coordinates):
                yield {"outputs": drawn.y} | ({"scores": drawn.p} if self.scores else {})
                advance(len(drawn.y))


def build_draws(
    out: Out,
    networks: Annotated[int, typer.Option(help="Networks: independent draws of the scores.")] = 1000,
    coordinates: Annotated[int, typer.Option(help="Coordinates of each network, which share its scores.")] = 16,
    scores: Scores = False,
    force: Force = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> Draws:
    """The draws that the options of a command ask for."""
    return Draws(out, networks, coordinates, scores, force, seed, as_json)


@takes(build_layer, build_kernel)
def print_law(
    layer: Any,
    K: Any,
    token: Token = 0,
    moments: Annotated[bool, typer.Option("--moments", help="Variance and kurtosis alone: quick for many tokens.")] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Print the law of one token: variance, excess kurtosis, quantiles and tail probabilities of |y|, with errors."""
    import hierattn as ha
    from hierattn.law import moments as of_moments
    from hierattn.law import token_law

    if len(K) > MANY and not moments:
        notice(f"the distribution of one token of {len(K)} takes long, and much memory; --moments leaves it out")
    law = ha.Law(layer, K)
    summary = of_moments.summary if moments else token_law.summary
    print_record(f"{law}, token {token}", summary(law, token, seed), as_json)


@takes(build_layer, build_kernel, build_draws)
def write_sample(layer: Any, K: Any, draws: Draws) -> None:
    """Draw outputs (network, token, coordinate) from the law and write them with their provenance."""
    import hierattn as ha
    from hierattn.base.provenance import digest

    law = ha.Law(layer, K)
    draws.write(law.stream, law, {"law": repr(law), "dtype": str(law.dtype), "kernel_sha256": digest(law.L_k)})


@takes(build_layer, build_draws)
def write_simulation(
    layer: Any,
    draws: Draws,
    width: Annotated[int, typer.Option(help="Width n of the networks.")],
    tokens: Annotated[int, typer.Option(help="Tokens in the sequence.")] = 4,
    activation: Annotated[ActivationName, typer.Option(help="Inputs phi(W h) through it.")] = ActivationName.clip,
    method: Annotated[MethodName, typer.Option(help="Exact without weights, or every weight.")] = MethodName.collapsed,
) -> None:
    """Draw outputs of networks of finite width, with the paper's random inputs, and write them with their provenance."""
    from functools import partial

    import hierattn as ha

    inputs = ha.RandomInputs(width, tokens, activation.value)
    law = ha.FiniteWidth(layer, inputs)
    explicit = partial(ha.network.stream, layer=layer, inputs=inputs)
    stream = law.stream if method == MethodName.collapsed else lambda key, m, c: explicit(key, networks=m, coordinates=c)
    origin = {"law": repr(law), "activation": activation.value, "method": method.value, "dtype": str(law.dtype)}
    draws.write(stream, law, origin)


@takes(build_observations)
def print_inspection(observations: Any, as_json: Json = False) -> None:
    """Show what was understood of a file of observed outputs: sizes, scales, the kernel's spectrum, tokens that look wrong."""
    from hierattn.observed.inspection import describe

    print_record(str(observations), describe(observations), as_json)
