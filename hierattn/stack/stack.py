"""The law of a whole Transformer at initialisation: a Markov chain on the tokens' inner products, exact at any width.

No weight is drawn, and no coordinate but those that hidden units need. At infinite width what is left random are the scores
(and, at a finite head_dim or MLP width, values and hidden units).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import check_counts, check_key, unusable
from hierattn.base.float64 import in_float64
from hierattn.law.sampling import power_of_two
from hierattn.layer.kernels import factor
from hierattn.numerics.random_numbers import two_keys
from hierattn.stack.blocks import MLP, Block, Norm
from hierattn.stack.branches import attend, entropy, perceive
from hierattn.stack.embedding import Embedding, Unembedding
from hierattn.stack.frame import Frame, added, drawn, one_minus_cosine

ROOM = 2**20  # numbers of the largest array of a layer that are drawn at once
MOST = 256  # networks drawn at once


class Streams(NamedTuple):
    """What networks do to their tokens, layer by layer: 0 the embedding, then after every block, last after the final norm.

    - gram: X X' / n of the residual stream
    - apart: 1 - cosine of every two tokens, to as many digits as it has
    - means: of a token over coordinates; zero where no LayerNorm asks for them
    - branch_gram: of the outputs of attention and MLP, where a block has them (zeros elsewhere), before they are added
    - entropy, largest: of attention's weights, and the largest of a row, means over queries; zero without attention
    """

    gram: Float[Array | np.ndarray, "network layer s s"]
    apart: Float[Array | np.ndarray, "network layer s s"]
    means: Float[Array | np.ndarray, "network layer s"]
    branch_gram: Float[Array | np.ndarray, "network block 2 s s"]
    entropy: Float[Array | np.ndarray, "network block H"]
    largest: Float[Array | np.ndarray, "network block H"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Stack:
    """A Transformer, described: an embedding, blocks one after the other, a final norm.

    - width: n, coordinates of the residual stream; None for the limit of infinite width
    - embedding: how tokens enter
    - blocks: in order; `[block] * 12` repeats one, with weights of its own each time
    - final_norm: after the last block
    - unembedding: what logits are made with, if their loss is asked for (`initial_losses`)
    """

    width: int | None
    embedding: Embedding
    blocks: tuple[Block, ...]
    final_norm: Norm | None = None
    unembedding: Unembedding | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if self.width is not None:
            check_counts(width=self.width)
        if not self.blocks:
            raise unusable("blocks", "at least one Block", "none")
        heads = {block.attention.heads for block in self.blocks if block.attention is not None}
        if len(heads) > 1:
            raise unusable("blocks", "the same number of heads in each", sorted(heads))
        for block in self.blocks:
            if block.attention is not None:
                block.attention.allowed(self.tokens, self.tokens)

    def __repr__(self) -> str:
        width = "infinite" if self.width is None else self.width
        return f"Stack(width={width}, blocks={len(self.blocks)}, tokens={self.tokens})"

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.embedding.tokens

    @property
    def means(self) -> bool:
        """Must the tokens' means be followed?"""
        norms = (self.embedding.norm, self.final_norm, *(block.norm for block in self.blocks))
        return any(norm is not None and norm.kind == "layer" for norm in norms)

    def kinds(self) -> dict[str, int]:
        """Blocks in words, and how many there are of each kind."""
        return dict(Counter(block.words for block in self.blocks))

    def replace(self, **changes: Any) -> "Stack":
        """A copy with some fields changed."""
        return replace_fields(self, **changes)

    def at_infinite_width(self) -> "Stack":
        """The limit of width and of hidden units; heads and head_dim stay."""
        blocks = (
            b if b.mlp is None else replace_fields(b, mlp=replace_fields(b.mlp, width=None, units=None)) for b in self.blocks
        )
        return self.replace(width=None, blocks=tuple(blocks))

    def sample(self, rng_key: Array, networks: int = 1) -> Streams:
        """Streams of so many networks, in float64; the first are the same however many are asked for."""
        parts = list(self.stream(rng_key, networks))
        return Streams._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def stream(self, rng_key: Array, networks: int = 1) -> Iterator[Streams]:
        """The same, some networks at a time."""
        check_key(rng_key)
        check_counts(networks=networks)
        chunk = min(MOST, power_of_two(ROOM // self._largest()))
        for c in range(-(-networks // chunk)):
            found = _chunk(self, jax.random.fold_in(rng_key, c), chunk)
            yield Streams(*(x[: networks - c * chunk] for x in found))

    def _largest(self) -> int:
        """Numbers of the largest array that one network needs in a layer."""
        s, sizes = self.tokens, [self.tokens**2]
        for block in self.blocks:
            sizes += [] if block.attention is None else [block.attention.heads * s * s]
            sizes += [] if block.mlp is None else [(s + 2) * (block.mlp.units or block.mlp.width or 200)]
        return max(sizes)


@in_float64
def _chunk(stack: Stack, rng_key: Array, networks: int) -> Streams:
    """Networks through all layers, one compiled program for each kind of block."""
    keys = jax.random.split(rng_key, len(stack.blocks) + 1)
    frame = enter(keys[0], stack, networks)
    seen, branches, spreads = [_look(frame)], [], []
    for key, block in zip(keys[1:], stack.blocks, strict=True):
        frame, branch, spread = _through(key, frame, _at_width(block, stack.width))
        seen.append(_look(frame))
        branches.append(branch)
        spreads.append(spread)
    if stack.final_norm is not None:
        seen.append(_look(frame.normed(stack.final_norm)))
    heads = max(x.shape[-1] for x in spreads)
    spreads = [x if x.shape[-1] == heads else jnp.zeros((2, networks, heads)) for x in spreads]
    gram, apart, means = (jnp.stack(arrays, axis=1) for arrays in zip(*seen, strict=True))
    return Streams(gram, apart, means, jnp.stack(branches, axis=1), *jnp.stack(spreads, axis=2))


def _at_width(block: Block, width: int | None) -> Block:
    if width is None or block.attention is None:
        return block
    return replace_fields(block, attention=block.attention.at_width(width))


def enter(rng_key: Array | None, stack: Stack, networks: int) -> Frame:
    """The embedded tokens: a Wishart matrix of the width, or what was given; nothing is drawn at infinite width."""
    embedding, n, means = stack.embedding, stack.width, stack.means
    empty = Frame(jnp.zeros((networks, stack.tokens, 1 if means else 0)), n, means)
    if embedding.kernel is not None:
        L = factor(embedding.kernel)  # with fewer columns where tokens are repeated
        frame = added(empty, 0.0, 1.0, drawn(rng_key, empty, jnp.broadcast_to(L, (networks, *L.shape))))
    else:
        m = np.zeros(stack.tokens) if embedding.means is None or not means else embedding.means
        F = np.concatenate([m[:, None]] * means + [factor(embedding.gram - np.outer(m, m))], axis=1)
        frame = Frame(jnp.broadcast_to(F, (networks, *F.shape)), n, means)
    return frame.normed(embedding.norm)


@jax.jit
def _look(frame: Frame) -> tuple[Array, Array, Array]:
    """Gram matrix, distances, means."""
    means = frame.F[..., 0] if frame.means else jnp.zeros(frame.F.shape[:2], frame.F.dtype)
    return frame.gram, one_minus_cosine(frame.F), means


@jax.jit
def _through(rng_key: Array, frame: Frame, block: Block) -> tuple[Frame, Array, Array]:
    """One block: the stream after it, Gram matrices of its branches' outputs, entropies and largest weights of its heads."""
    networks, s, _ = frame.F.shape
    grams = dict.fromkeys(("attention", "mlp"), jnp.zeros((networks, s, s), frame.F.dtype))
    spreads = jnp.zeros((2, networks, 1), frame.F.dtype)
    keys, names = iter(jax.random.split(rng_key)), iter([name for name, _, _ in block.branches()])

    def output(branch: Any, seen: Frame, stream: Frame) -> Frame:
        nonlocal spreads
        key_branch, key_out = two_keys(next(keys))
        if isinstance(branch, MLP):
            B = perceive(key_branch, branch, seen.F)
        else:
            B, A = attend(key_branch, branch, seen.F)
            spreads = jnp.stack([entropy(A), A.max(axis=-1)]).mean(axis=-1)
        return stream.at(drawn(key_out, stream, B))

    def with_branch(stream: Frame, skip: Any, gain: Any, Y: Frame) -> Frame:
        grams[next(names)] = Y.gram
        return stream.plus(skip, gain, Y)

    frame = block.through(frame, output, lambda x: x.normed(block.norm), with_branch)
    return frame, jnp.stack(list(grams.values()), axis=1), spreads
