"""Variances of fresh weights by Hugging Face's own initialisers, read off `_init_weights` of the library and of its models."""

from typing import Any

import numpy as np
from scipy import stats
from torch import nn

from hierattn.frameworks.runs import Linear

USUAL = 0.02  # of a config that does not say, or says zero


def initialisers(module: nn.Module, maps: dict[str, Linear], heads: int) -> dict[str, tuple[float, ...]]:
    """Entry variances of the maps q, k, v, o, and of sinks; several where a model may do one or the other.

    N(0, std^2), std the config's initializer_range, init_std or initializer_factor; W^O divided by sqrt(2 layers) in GPT-2 and
    ModernBERT, which cuts its normal off at a few std; T5 has its own.
    """
    config: Any = getattr(getattr(module, "self", module), "config", None)
    if config is None:
        return {}
    n, inner = maps["q"].W.shape
    if hasattr(module, "has_relative_attention_bias"):
        square = float(config.initializer_factor) ** 2
        return {"q": (square * heads / (n * inner),), "k": (square / n,), "v": (square / n,), "o": (square / inner,)}
    square = _std(config) ** 2
    drawn = square * _cut_off(getattr(config, "initializer_cutoff_factor", None))
    depth = int(getattr(config, "num_hidden_layers", None) or 1)
    return dict.fromkeys("qkv", (drawn,)) | {"o": (drawn, drawn / (2 * depth)), "sink": (square,)}


def _std(config: Any) -> float:
    """As `PreTrainedModel._init_weights` looks for it."""
    if hasattr(config, "initializer_range"):
        return float(config.initializer_range or USUAL)
    for name in ("init_std", "initializer_factor"):
        if hasattr(config, name):
            return float(getattr(config, name))
    return USUAL


def _cut_off(sigmas: float | None) -> float:
    """The variance of a standard normal variable that stays within so many standard deviations."""
    return 1.0 if sigmas is None else float(np.square(stats.truncnorm.std(-sigmas, sigmas)))
