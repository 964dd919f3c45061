"""What does an exact draw of a whole stack cost, against its own random numbers, and against drawing all weights?

Twelve blocks, 16 heads, 16 tokens, an MLP of four times the width, in float64. The random numbers of the chain are those of
hidden units, (tokens x 4 n) for each block; explicit networks draw 12 n^2 of them. Prints ratios of times for each network.
"""

from functools import partial

import jax
from timing import fastest, record

from hierattn import MLP, Architecture, Block, Embedding, Norm, Stack
from hierattn.finite.explicit_stack import explicit_streams
from hierattn.numerics.random_numbers import normals

LAYERS, HEADS, TOKENS, NETWORKS = 12, 16, 16, 4
WIDTHS, LARGEST_EXPLICIT = (256, 1024, 4096), 1024


def stack_of(width: int, mlp: bool = True) -> Stack:
    """Pre-norm and causal."""
    attention = Architecture(heads=HEADS, head_dim=width // HEADS, mask="causal")
    block = Block(attention=attention, mlp=MLP(width=4 * width) if mlp else None, norm=Norm())
    return Stack(width=width, embedding=Embedding.independent(TOKENS), blocks=[block] * LAYERS, final_norm=Norm())


def draw_numbers(width: int) -> list:
    """The hidden units' normals, a block at a time."""
    with jax.enable_x64(True):
        keys = jax.random.split(key, LAYERS)
        return [normals(k, (NETWORKS, TOKENS, 4 * width)) for k in keys]


key, ratios, attention_alone = jax.random.key(0), {}, {}
for width in WIDTHS:
    stack = stack_of(width)
    functions = {"chain": partial(stack.sample, key, NETWORKS), "numbers": partial(draw_numbers, width)}
    functions["attention alone"] = partial(stack_of(width, mlp=False).sample, key, NETWORKS)
    times = fastest(functions, repeats=3)
    chunk = next(iter(stack.stream(key, 10**4))).gram.shape[0]
    drawn = -(-NETWORKS // chunk) * chunk  # networks that a call really draws
    each = {"chain": times["chain"] / drawn, "numbers": times["numbers"] / NETWORKS}
    ratios[f"n = {width}: chain / its numbers"] = each["chain"] / each["numbers"]
    attention_alone[width] = times["attention alone"]
    if width <= LARGEST_EXPLICIT:
        explicit = fastest({"explicit": partial(explicit_streams, key, stack, 1)}, repeats=1)["explicit"]
        ratios[f"n = {width}: explicit / chain"] = explicit / each["chain"]
    print(f"n = {width}: {each['chain']:.4f} s a network, {each['numbers']:.4f} s for its numbers")
ratios["attention alone, widest / narrowest"] = attention_alone[WIDTHS[-1]] / attention_alone[WIDTHS[0]]
for name, value in ratios.items():
    print(f"  {name:40s} {value:.3g}")
record("depth", ratios)
