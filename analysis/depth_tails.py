"""Depth does not make tails heavier; finite heads slow rank collapse on average, by a few networks, but not the typical one's.

Infinite width, 8 tokens, pre-norm attention layers: the excess kurtosis of a coordinate of the stream and of a layer's output,
and 1 - cosine of two tokens without skip connections, against the recursion of infinitely many heads.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from plotting import SEED, SERIES, main

from hierattn import Architecture, Block, Embedding, Norm, Stack
from hierattn.stack.recursions.baselines import cosines
from hierattn.stack.recursions.infinite_heads import infinite_heads
from hierattn.stack.summary import look, summary_of

TOKENS, LAYERS, WITHOUT_SKIP, NETWORKS = 8, 12, 4, 20_000
KINDS = {"1 head, score scale 2": (1, 2.0), "4 heads, score scale 2": (4, 2.0), "1 head, score scale 8": (1, 8.0)}


def stack_of(heads: int, score_scale: float, layers: int, skip: float = 1.0) -> Stack:
    """Attention alone; without skip connections every layer is normed after it."""
    block = Block(
        attention=Architecture(heads=heads, sigma_q=score_scale),
        norm=Norm(eps=0.0),
        placement="pre" if skip else "post",
        skip=skip,
    )
    return Stack(width=None, embedding=Embedding.independent(TOKENS), blocks=[block] * layers)


def compute(quick: bool) -> dict:
    """Kurtosis and cosines of all layers."""
    layers, networks = (2, 512) if quick else (LAYERS, NETWORKS)
    found: dict = {"kinds": {}, "collapse": {}, "tokens": TOKENS, "networks": networks}
    for name, (heads, scale) in list(KINDS.items())[: 1 if quick else None]:
        stack = stack_of(heads, scale, layers)
        told = summary_of(stack, [look(stack, part) for part in stack.stream(jax.random.key(SEED), networks)])
        wanted = ("kurtosis", "kurtosis_attention", "cosine", "cosine_spread")
        found["kinds"][name] = {key: told[key] for key in told if key.removesuffix("_error") in wanted}
    found["recursion_with_skips"] = cosines(infinite_heads(stack_of(1, 2.0, layers))).tolist()
    few = 2 if quick else WITHOUT_SKIP
    for heads in (1,) if quick else (1, 4):
        stack = stack_of(heads, 2.0, few, 0.0)
        apart = np.concatenate([look(stack, part).apart for part in stack.stream(jax.random.key(SEED), networks)])
        logs = np.log(apart)
        found["collapse"][f"{heads} head{'s' * (heads > 1)}"] = {
            "mean": apart.mean(axis=0).tolist(),
            "mean_error": (apart.std(axis=0) / networks**0.5).tolist(),
            "typical": np.exp(logs.mean(axis=0)).tolist(),
            "typical_error": (np.exp(logs.mean(axis=0)) * logs.std(axis=0) / networks**0.5).tolist(),
        }
    found["recursion"] = (1 - cosines(infinite_heads(stack_of(1, 2.0, few, 0.0)))).tolist()
    return found


def draw(results: dict) -> plt.Figure:
    """Stream, layer's output, collapse."""
    figure, (stream, branch, collapse) = plt.subplots(1, 3, figsize=(11.5, 3.6))
    for (name, told), style in zip(results["kinds"].items(), SERIES[1:], strict=False):
        x = np.arange(len(told["kurtosis"]))
        stream.errorbar(x, told["kurtosis"], 2 * np.array(told["kurtosis_error"]), **style, capsize=2, label=name)
        own, errors = (np.array(told[f"kurtosis_attention{end}"][1:], float) for end in ("", "_error"))
        branch.errorbar(x[1:], own, 2 * errors, **style, capsize=2, label=name)
    stream.set(title="a coordinate of the stream", ylabel="excess kurtosis")
    branch.set(title="a coordinate of a layer's output", ylabel="excess kurtosis")
    for (name, told), style in zip(results["collapse"].items(), SERIES[1:], strict=False):
        x = np.arange(len(told["mean"]))
        collapse.errorbar(
            x, told["mean"], 2 * np.array(told["mean_error"]), **style, capsize=2, label=f"{name}, mean of networks"
        )
        collapse.plot(x, told["typical"], color=style["color"], ls=":", label=f"{name}, a typical one")
    collapse.plot(x, results["recursion"], color="black", lw=2.2, zorder=0.5, label="infinitely many heads")
    collapse.set(title="without skip connections", ylabel="1 - cosine of two tokens", yscale="log")
    for axes in (stream, branch, collapse):
        axes.set_xlabel("layer")
        axes.legend()
    stream.axhline(0, color="#888888", lw=1)
    branch.axhline(0, color="#888888", lw=1)
    return figure


if __name__ == "__main__":
    main("depth_tails", compute, draw)
