"""A Hugging Face config.json read as plain data: the stack that the library would build from it, at initialisation.

Nothing of Transformers is needed. Files on disk leave out what is the family's default, so that defaults stand in `families`.
What a config asks for and the law does not cover is refused by name.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from hierattn.base.errors import InputError, as_array, unusable

LARGEST = {"width": 2**20, "layers": 2**12, "heads": 2**14, "head_dim": 2**14, "hidden units": 2**24, "tokens": 2**14}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "tanh": "tanh",
}
FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of attention
LARGEST_FILE = 2**22  # bytes
OLD_NAMES = {  # GPT-NeoX's, and Gemma's
    "rotary_pct": "partial_rotary_factor",
    "rotary_emb_base": "rope_theta",
    "hidden_activation": "hidden_act",
    "sliding_window_pattern": "layer_types",
}


class Config:
    """Fields of a config, its family's defaults behind them; every one is checked when it is asked for."""

    def __init__(self, fields: dict[str, Any], defaults: dict[str, Any], where: str) -> None:
        given = {OLD_NAMES.get(name, name): value for name, value in fields.items() if value is not None}
        self.fields, self.where = defaults | given, where

    def error(self, name: str, expected: str, remedy: str = "") -> InputError:
        """The field is not what it must be."""
        return unusable(f"{self.where}: {name}", expected, json.dumps(self.fields.get(name))[:80], remedy)

    def count(self, name: str, kind: str, otherwise: int | None = None) -> int:
        """A whole number that is not absurd."""
        value = self.fields.get(name, otherwise)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST[kind]:
            raise self.error(name, f"a whole number from 1 to {LARGEST[kind]}")
        return value

    def number(self, name: str, otherwise: float | None = None) -> float:
        """A finite number that is not negative."""
        value = self.fields.get(name, otherwise)
        if not isinstance(value, int | float) or isinstance(value, bool) or not (np.isfinite(value) and value >= 0):
            raise self.error(name, "a number of at least 0")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.fields.get(name, False)
        if not isinstance(value, bool):
            raise self.error(name, "true or false")
        return value

    def activation(self, name: str) -> str:
        """A name of ours for one of theirs."""
        value = self.fields.get(name)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise self.error(name, "one of " + ", ".join(ACTIVATIONS))
        return ACTIVATIONS[value]

    def rotary(self, head_dim: int, kind: str = FULL) -> Float[np.ndarray, " pair"]:
        """A frequency for every pair of head coordinates: zero for those that are not turned. Old and new names are read.

        kind: of the layer's attention; some families turn sliding attention in another way.
        """
        told = self.fields.get("rope_parameters") or self.fields.get("rope_scaling") or {}
        if isinstance(told, dict) and told and set(told) <= {FULL, SLIDING}:
            told = told.get(kind) or {}
        elif kind == SLIDING and "rope_local_base_freq" in self.fields:  # old name; there long waves are not slowed
            told = {"rope_theta": self.number("rope_local_base_freq")}
        if not isinstance(told, dict):
            raise self.error("rope_parameters", "names and numbers")
        rope = Config({**self.fields, **told}, {"rope_theta": 10000.0, "partial_rotary_factor": 1.0}, self.where)
        turned = int(head_dim * rope.number("partial_rotary_factor"))
        base = rope.number("rope_theta")
        if turned % 2 or not 0 < turned <= head_dim or base <= 0:
            raise self.error("rope_parameters", f"an even number of up to {head_dim} coordinates, and a positive base")
        frequencies = base ** (-np.arange(0, turned, 2) / turned)
        kind = rope.fields.get("rope_type", rope.fields.get("type", "default"))
        if kind == "linear":
            frequencies = frequencies / rope.number("factor")
        elif kind == "llama3":
            frequencies = _slowed(frequencies, rope)
        elif kind != "default":
            raise self.error("rope_parameters", "rope_type default, linear or llama3", "other frequencies are not known")
        return np.concatenate([frequencies, np.zeros((head_dim - turned) // 2)])

    def mask(self, tokens: int, window: Any) -> Any:
        """Causal, and no further back than a window."""
        if window is None or (isinstance(window, int) and window >= tokens):
            return "causal"
        if not isinstance(window, int) or isinstance(window, bool) or window < 1:
            raise self.error("sliding_window", "a positive whole number or null")
        back = np.subtract.outer(np.arange(tokens), np.arange(tokens))
        return (back >= 0) & (back < window)

    def kinds(self, layers: int, window: Any) -> list[str]:
        """The attention of every layer: with a window, or full; by default all, all but every so many, or all from one on."""
        first = self.fields.get("max_window_layers", 0)
        kinds = self.fields.get("layer_types")
        if kinds is None:
            kinds = [SLIDING if window is not None and i >= first else FULL for i in range(layers)]
        if isinstance(kinds, int) and not isinstance(kinds, bool) and kinds > 0:
            kinds = [FULL if (i + 1) % kinds == 0 else SLIDING for i in range(layers)]
        if not isinstance(kinds, list) or len(kinds) < layers or not set(kinds) <= {FULL, SLIDING}:
            raise self.error("layer_types", f"{layers} of {FULL}, {SLIDING}")
        return kinds[:layers]


def _slowed(frequencies: np.ndarray, rope: Config) -> np.ndarray:
    """Llama 3.1: waves longer than the old context turn slower by a factor, those much shorter as before."""
    waves = rope.number("original_max_position_embeddings") * frequencies / (2 * np.pi)  # in the old context
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if not high > low:
        raise rope.error("high_freq_factor", "more than low_freq_factor")
    kept = np.clip((waves - low) / (high - low), 0, 1)
    return frequencies * (kept + (1 - kept) / rope.number("factor"))


def read_fields(config: Any) -> tuple[dict[str, Any], str]:
    """The fields of a config: a dict, or the path of a JSON file; and what to call it in errors."""
    if isinstance(config, dict):
        return config, "config"
    path = Path(config)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise unusable(str(path), f"a config of at most {LARGEST_FILE} bytes", f"{path.stat().st_size}")
        fields = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as wrong:
        if isinstance(wrong, InputError):
            raise
        raise unusable(str(path), "a readable config.json", f"{type(wrong).__name__}: {str(wrong)[:80]}") from None
    if not isinstance(fields, dict):
        raise unusable(str(path), "the fields of a config", type(fields).__name__)
    return fields, str(path)


def token_ids(ids: Any, vocabulary: int) -> np.ndarray:
    """Whole numbers within a vocabulary."""
    ids = as_array("token_ids", ids, None)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not 1 <= ids.size <= LARGEST["tokens"]:
        raise unusable("token_ids", f"a list of 1 to {LARGEST['tokens']} whole numbers", f"{ids.dtype} of shape {ids.shape}")
    if ids.min() < 0 or ids.max() >= vocabulary:
        raise unusable("token_ids", f"numbers from 0 to {vocabulary - 1}", f"{ids.min()} to {ids.max()}")
    return ids
