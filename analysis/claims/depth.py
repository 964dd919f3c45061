"""Depth: the chain of Gram matrices is the law of stacks drawn weight by weight, 2,000 networks a side: every placement with
both norms, causal and not, groups, rotary embeddings, gates, repeated tokens, more tokens than coordinates; widths 16, 64 and
256; 1, 3 and 12 layers; two-sample tests of products, cosines, eigenvalues and products of two layers'. Mistakes are noticed.
Some hidden units drawn in the place of all: what it changes. The mean field of 512 tokens, beside its published limit."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from hierattn import MLP, Architecture, Block, Embedding, Norm, Stack, rotary_frequencies
from hierattn.finite.explicit_stack import explicit_streams
from hierattn.stack import stack as chain
from hierattn.stack.recursions.mean_field import exact, mean_field, random_energy
from hierattn.stack.summary import look
from tests.stack.compared import gram_of, p_value
from tests.statistics import LEVEL

SEED = 0
NETWORKS, AT_ONCE = 2_000, 100
EPS = 0.3  # large, so that a norm without it is seen
RMS, LAYER = Norm(eps=EPS), Norm(kind="layer", eps=EPS)
REPEATED = Embedding.of_tokens([5, 9, 5, 7], 1.0, 0.3)
CAUSAL = Architecture(heads=2, sigma_q=3.0, mask="causal")
GROUPS = Architecture(heads=4, key_value_heads=2, sigma_q=3.0)
PERCEPTRON, GATED = (
    MLP(activation="gelu", sigma_out=1.5),
    MLP(activation="silu", gated=True, sigma_bias=0.5, sigma_bias_out=0.3),
)


def stack_of(
    width: int, layers: int, placement: str, norm: Norm | None, attention: Architecture, mlp: MLP, turned: bool = False
) -> Stack:
    """Heads share the width; twice as many hidden units."""
    head_dim = max(2, width // attention.heads)
    attention = attention.replace(head_dim=head_dim, rotary=rotary_frequencies(head_dim) if turned else None)
    mlp = replace(mlp, width=2 * width)
    block = Block(attention=attention, mlp=mlp, norm=norm, placement=placement, attention_gain=1.5, mlp_gain=0.7, skip=0.9)
    final = None if placement in ("post", "none") else norm
    return Stack(width=width, embedding=REPEATED, blocks=[block] * layers, final_norm=final)


VARIANTS = {
    f"{placement}, {norm.kind}": partial(stack_of, placement=placement, norm=norm, attention=attention, mlp=mlp, turned=turned)
    for placement, (attention, mlp, turned) in {
        "pre": (CAUSAL, PERCEPTRON, True),
        "post": (GROUPS, PERCEPTRON, False),
        "sandwich": (CAUSAL, GATED, False),
        "branch": (GROUPS, GATED, True),
        "parallel": (CAUSAL, PERCEPTRON, False),
    }.items()
    for norm in (RMS, LAYER)
}
VARIANTS["none"] = partial(stack_of, placement="none", norm=None, attention=GROUPS, mlp=PERCEPTRON)
DEPTHS = (1, 3, 12)


def explicit_gram(stack: Stack, networks: int = NETWORKS) -> np.ndarray:
    """Of networks drawn weight by weight."""
    keys = jax.random.split(jax.random.key(SEED + 1), networks // AT_ONCE)
    return np.concatenate([gram_of(np.asarray(explicit_streams(key, stack, AT_ONCE))) for key in keys])


def chain_gram(stack: Stack, networks: int = NETWORKS) -> np.ndarray:
    """Of the chain."""
    return stack.sample(jax.random.key(SEED), networks).gram


def same(make: Callable[..., Stack], width: int, layers: int) -> dict:
    """One description."""
    stack = make(width, layers)
    p = float(p_value(chain_gram(stack), explicit_gram(stack)))
    return {"passed": p > LEVEL, "p_value": p, "networks": NETWORKS}


def narrow() -> dict:
    """20 tokens in 16 coordinates, some of them repeated."""
    stack = stack_of(16, 3, "pre", LAYER, CAUSAL, GATED).replace(
        embedding=Embedding.of_tokens([*range(15), 0, 1, 2, 3, 4], 1.0)
    )
    p = float(p_value(chain_gram(stack), explicit_gram(stack)))
    return {"passed": p > LEVEL, "p_value": p, "networks": NETWORKS}


def nothing_along(rng_key, frame, L):
    """The cross term is dropped: a branch forgets its part along the frame."""
    return DRAWN(rng_key, frame, L).at[..., : frame.F.shape[-1]].set(0)


def another_along(rng_key, frame, L):
    """One Z too many: a branch's squares come from other normals than its products with the stream."""
    Y = DRAWN(rng_key, replace(frame, F=frame.F[..., :0]), L)
    return jnp.concatenate([DRAWN(rng_key, frame, L)[..., : frame.F.shape[-1]], Y], axis=-1)


DRAWN = chain.drawn
MISTAKES = {
    "eps is 0": {"norm": Norm(eps=0.0)},
    "gains 10 % off": {"attention_gain": 1.65, "mlp_gain": 0.77},
    "heads correlated": {"attention": CAUSAL.replace(heads=1, head_dim=8)},
    "no mask": {"attention": CAUSAL.replace(mask=None, head_dim=8)},
}


def mistaken(mistake: Callable | dict) -> dict:
    """Width 16, three layers: a changed description, or a changed way of adding branches."""
    stack = stack_of(16, 3, "pre", RMS, CAUSAL, PERCEPTRON)
    truth = explicit_gram(stack)
    right = float(p_value(chain_gram(stack), truth))
    if isinstance(mistake, dict):
        wrong = chain_gram(stack.replace(blocks=[replace(block, **mistake) for block in stack.blocks]))
    else:
        through = chain._through.__wrapped__
        anew = jax.jit(lambda *arguments: through(*arguments))
        with mock.patch.object(chain, "drawn", mistake), mock.patch.object(chain, "_through", anew):
            wrong = chain_gram(stack)
    p = float(p_value(wrong, truth))
    return {"passed": p < LEVEL < right, "p_value": p, "p_value_without": right, "networks": NETWORKS}


def of_units(units: int, networks: int = 20_000) -> dict:
    """What the last layer's cosine and norm become if so many of 256 hidden units are drawn: six layers of width 64."""
    stack = stack_of(64, 6, "pre", RMS, CAUSAL, replace(PERCEPTRON, sigma_out=3.0))
    blocks = [replace(block, mlp=replace(block.mlp, width=256)) for block in stack.blocks]
    some = [replace(block, mlp=replace(block.mlp, units=units)) for block in blocks]
    numbers: dict = {"passed": True, "networks": networks}
    found = []
    for k, each in enumerate((blocks, some)):
        described = stack.replace(blocks=each)
        seen = look(described, described.sample(jax.random.key(SEED + k), networks))
        found.append({"cosine": seen.cosine[:, -2], "norm": seen.norm[:, -2]})
    for name in found[0]:
        all_of_them, few = (x[name] for x in found)
        mean_error = np.hypot(all_of_them.std(), few.std()) / networks**0.5
        sds = [x.std() for x in (all_of_them, few)]
        sd_error = np.hypot(*[np.std((x - x.mean()) ** 2) / (2 * x.std() * networks**0.5) for x in (all_of_them, few)])
        shift, spread = few.mean() - all_of_them.mean(), sds[1] - sds[0]
        numbers |= {
            f"{name}": float(all_of_them.mean()),
            f"{name}_off_by": float(shift),
            f"{name}_off_by_error": float(mean_error),
        }
        numbers |= {f"{name}_sd": float(sds[0]), f"{name}_sd_off_by": float(spread), f"{name}_sd_off_by_error": float(sd_error)}
        near = abs(shift) < 0.05 * sds[0] + 4 * mean_error and abs(spread) < 0.05 * sds[0] + 4 * sd_error
        numbers["passed"] = bool(numbers["passed"] and near)
    return numbers


def published(beta: float, networks: int = 60) -> dict:
    """512 tokens, width 720, one head, post-norm, a ReLU MLP of 720 units, weights of variance .2 / n, biases of 4e-4: the mean
    cosine over 12 layers of explicit networks, by the exact numbers of 512 tokens and by their limit; a fifth is the goal at
    beta = 1.5."""
    tokens, width, layers = 512, 720, 12
    attention = Architecture(heads=1, head_dim=width, sigma_q=beta * np.log(tokens) ** 0.5, sigma_v=0.2**0.5)
    mlp = MLP(width=width, activation="relu", sigma_in=0.2**0.5, sigma_out=0.2**0.5, sigma_bias=0.02, sigma_bias_out=0.02)
    block = Block(attention=attention, mlp=mlp, norm=Norm(eps=1e-12), placement="post")
    stack = Stack(width=width, embedding=Embedding(kernel=0.3 + 0.7 * np.eye(tokens)), blocks=[block] * layers)
    off = ~np.eye(tokens, dtype=bool)

    def cosine(key) -> np.ndarray:
        gram = gram_of(np.asarray(explicit_streams(key, stack, 2)))
        scale = np.sqrt(np.einsum("mlii->mli", gram))
        return (gram / scale[..., None] / scale[:, :, None])[..., off].mean(axis=-1)

    keys = jax.random.split(jax.random.key(SEED), networks // 2)
    seen = np.concatenate([cosine(key) for key in keys])
    mean, error = seen.mean(axis=0), seen.std(axis=0, ddof=1) / networks**0.5
    rms = {
        name: float(np.sqrt(np.mean((np.array([x.cosine for x in mean_field(stack, overlaps)]) - mean)[1:] ** 2)))
        for name, overlaps in (("exact", exact), ("limit", random_energy))
    }
    numbers = {"rms_exact": rms["exact"], "rms_limit": rms["limit"], "ratio": rms["exact"] / rms["limit"]}
    numbers |= {"error_of_networks": float(np.sqrt(np.mean(error[1:] ** 2))), "networks": networks}
    return {"passed": beta != 1.5 or rms["exact"] < rms["limit"] / 5, **numbers}


CASES = {
    f"width {width}, {layers} layers: {name}": partial(same, make, width, layers)
    for i, width in enumerate((16, 64, 256))
    for k, (name, make) in enumerate(VARIANTS.items())
    for layers in (DEPTHS[(i + k) % 3],)
}
CASES["20 tokens in 16 coordinates"] = narrow
CASES |= {f"mistake: {name}": partial(mistaken, {**changes}) for name, changes in MISTAKES.items()}
CASES |= {
    "mistake: no cross term": partial(mistaken, nothing_along),
    "mistake: one Z too many": partial(mistaken, another_along),
}
CASES |= {f"{units} of 256 hidden units drawn": partial(of_units, units) for units in (16, 64)}
CASES |= {f"mean field, beta {beta}": partial(published, beta) for beta in (0.5, 1.5, 3.0)}
