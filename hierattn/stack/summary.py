"""What a stack does to its tokens, layer by layer, in a few numbers: each with its error, networks being the units."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from hierattn.base.errors import unusable
from hierattn.stack.stack import Stack, Streams

LOW, HIGH = 0.05, 0.95


class Looks(NamedTuple):
    """One number per network and layer, or per network and block.

    - norm: G_ii of a token, its mean square over coordinates
    - cosine, apart: means over pairs of tokens of the cosine, and of 1 - cosine
    - effective_rank: (tr G)^2 / tr G^2
    - beyond_rank_one: 1 - largest eigenvalue / trace
    - fourth: mean fourth power of the token's coordinates, given the inner products
    - entropy, largest: of rows of attention's weights, means over queries and heads
    - branch, branch_fourth: mean square and mean fourth power of the token's coordinates in the outputs of attention and MLP
    """

    norm: Float[np.ndarray, "network layer"]
    cosine: Float[np.ndarray, "network layer"]
    apart: Float[np.ndarray, "network layer"]
    effective_rank: Float[np.ndarray, "network layer"]
    beyond_rank_one: Float[np.ndarray, "network layer"]
    fourth: Float[np.ndarray, "network layer"]
    entropy: Float[np.ndarray, "network block"]
    largest: Float[np.ndarray, "network block"]
    branch: Float[np.ndarray, "network block 2"]
    branch_fourth: Float[np.ndarray, "network block 2"]


def look(stack: Stack, streams: Streams, token: int = -1) -> Looks:
    """At networks one by one.

    Given inner products the rest of a token is a uniform direction, in n dimensions or the n - 1 beside the mean.
    """
    gram, apart = np.asarray(streams.gram), np.asarray(streams.apart)
    s = gram.shape[-1]
    if not -s <= token < s:
        raise unusable("token", f"a number from 0 to {s - 1}", token)
    i, j = np.tril_indices(s, -1)
    pairs = apart[..., i, j].mean(axis=-1) if s > 1 else np.zeros(gram.shape[:2])
    values = np.linalg.eigvalsh(gram)
    trace = values.sum(axis=-1)
    norm, mean = gram[..., token, token], np.asarray(streams.means)[..., token]
    random = norm - mean**2
    fourth = mean**4 + 6 * mean**2 * random + sphere(stack.width, stack.means) * random**2
    ranks = trace**2 / (values**2).sum(axis=-1), values[..., :-1].sum(axis=-1) / trace
    branch = np.asarray(streams.branch_gram)[..., token, token]
    spheres = np.array([sphere(stack.width, block.centres) for block in stack.blocks])[:, None]
    entropy, largest = (np.asarray(x).mean(axis=-1) for x in (streams.entropy, streams.largest))
    return Looks(norm, 1 - pairs, pairs, *ranks, fourth, entropy, largest, branch, spheres * branch**2)


def sphere(width: int | None, centred: bool) -> float:
    """n^2 times the mean fourth power of a coordinate of a random unit vector in n dimensions, or among those of mean zero."""
    if width is None:
        return 3.0
    return 3 * (width - 1) / (width + 1) if centred else 3 * width / (width + 2)


def summarise(looks: Looks) -> dict[str, list[float | None]]:
    """Means over networks with errors, spreads and quantiles, and the excess kurtosis of a coordinate, for each layer.

    What belongs to a block stands at the layer after it; None where there is nothing of the kind.
    """
    told: dict[str, Any] = {}
    for name in ("norm", "cosine", "apart", "effective_rank", "beyond_rank_one", "entropy", "largest"):
        x = getattr(looks, name)
        told |= {name: x.mean(axis=0), f"{name}_error": _error(x), f"{name}_spread": x.std(axis=0, ddof=1)}
    for name in ("norm", "cosine", "apart"):
        told[f"{name}_low"], told[f"{name}_high"] = np.quantile(getattr(looks, name), [LOW, HIGH], axis=0)
    told["kurtosis"], told["kurtosis_error"] = _kurtosis(looks.norm, looks.fourth)
    for k, name in enumerate(("attention", "mlp")):
        found = _kurtosis(looks.branch[..., k], looks.branch_fourth[..., k])
        told[f"kurtosis_{name}"], told[f"kurtosis_{name}_error"] = found
    for name in told:
        if name.startswith(("entropy", "largest")):
            told[name] = np.where(looks.largest.mean(axis=0) > 0, told[name], np.nan)
    return {name: _of_layers(np.asarray(values), looks.norm.shape[1]) for name, values in told.items()}


def _kurtosis(second: Float[np.ndarray, "network k"], fourth: Float[np.ndarray, "network k"]) -> tuple[np.ndarray, np.ndarray]:
    """Excess kurtosis over networks of what has these moments in each, and its error by the delta method."""
    m2, m4 = second.mean(axis=0), fourth.mean(axis=0)
    m2 = np.where(m2 > 0, m2, np.nan)
    return m4 / m2**2 - 3, _error(fourth / m2**2 - 2 * m4 * second / m2**3)


def _of_layers(values: np.ndarray, layers: int) -> list[float | None]:
    """One for each layer: before the first block and after the last one there is no branch."""
    if len(values) < layers:
        values = np.concatenate([[np.nan], values, np.full(layers - 1 - len(values), np.nan)])
    return [float(x) if np.isfinite(x) else None for x in values]


def summary_of(stack: Stack, looks: list[Looks]) -> dict[str, list[float | None]]:
    """Of looks at parts of the networks."""
    whole = Looks._make(np.concatenate(parts) for parts in zip(*looks, strict=True))
    if len(whole.norm) < 2:
        raise unusable("networks", "at least 2, for errors", len(whole.norm))
    told = summarise(whole)
    if stack.embedding.kernel is None:  # coordinates of given inputs have no random direction
        del told["kurtosis"], told["kurtosis_error"]
    return told


def _error(x: np.ndarray) -> np.ndarray:
    """Standard error of a mean over networks."""
    return x.std(axis=0, ddof=1) / len(x) ** 0.5
