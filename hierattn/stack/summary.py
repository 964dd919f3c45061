"""What a stack does to its tokens, layer by layer, in a few numbers: each with its error, networks being the units."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from hierattn.base.errors import unusable
from hierattn.stack.stack import Stack, Streams

LOW, HIGH = 0.05, 0.95


class Looks(NamedTuple):
    """One number per network and layer.

    - norm: G_ii of a token, its mean square over coordinates
    - cosine, apart: means over pairs of tokens of the cosine, and of 1 - cosine
    - effective_rank: (tr G)^2 / tr G^2
    - beyond_rank_one: 1 - largest eigenvalue / trace
    - fourth: mean fourth power of the token's coordinates, given the inner products
    """

    norm: Float[np.ndarray, "network layer"]
    cosine: Float[np.ndarray, "network layer"]
    apart: Float[np.ndarray, "network layer"]
    effective_rank: Float[np.ndarray, "network layer"]
    beyond_rank_one: Float[np.ndarray, "network layer"]
    fourth: Float[np.ndarray, "network layer"]


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
    n = stack.width
    sphere = 3.0 if n is None else 3 * (n - 1) / (n + 1) if stack.means else 3 * n / (n + 2)
    fourth = mean**4 + 6 * mean**2 * random + sphere * random**2
    return Looks(norm, 1 - pairs, pairs, trace**2 / (values**2).sum(axis=-1), values[..., :-1].sum(axis=-1) / trace, fourth)


def summarise(looks: Looks) -> dict[str, list[float]]:
    """Means over networks with errors, spreads and quantiles, and the excess kurtosis of a coordinate, for each layer."""
    told: dict[str, Any] = {}
    for name in ("norm", "cosine", "apart", "effective_rank", "beyond_rank_one"):
        x = getattr(looks, name)
        told |= {name: x.mean(axis=0), f"{name}_error": _error(x), f"{name}_spread": x.std(axis=0, ddof=1)}
    told["cosine_low"], told["cosine_high"] = np.quantile(looks.cosine, [LOW, HIGH], axis=0)
    second, fourth = looks.norm.mean(axis=0), looks.fourth.mean(axis=0)
    told["kurtosis"] = fourth / second**2 - 3
    told["kurtosis_error"] = _error(looks.fourth / second**2 - 2 * fourth * looks.norm / second**3)  # the delta method
    return {name: np.asarray(values).tolist() for name, values in told.items()}


def summary_of(stack: Stack, looks: list[Looks]) -> dict[str, list[float]]:
    """Of looks at parts of the networks."""
    whole = Looks._make(np.concatenate(parts) for parts in zip(*looks, strict=True))
    if len(whole.norm) < 2:
        raise unusable("networks", "at least 2, for errors", len(whole.norm))
    told = summarise(whole)
    if stack.embedding.kernel is None:  # coordinates of given inputs have no random direction
        told = {name: values for name, values in told.items() if not name.startswith("kurtosis")}
    return told


def _error(x: np.ndarray) -> np.ndarray:
    """Standard error of a mean over networks."""
    return x.std(axis=0, ddof=1) / len(x) ** 0.5
