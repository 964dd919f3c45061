"""A described layer: its law, in which no parameter is free, and what is printed of it."""

from typing import Any

import numpy as np

from hierattn.base.errors import unusable
from hierattn.law.law import Law
from hierattn.layer.architecture import Architecture
from hierattn.layer.record import ARRAYS, COUNTS, NEW, SCALES, WORDS
from hierattn.observed.observations import Observations


def law_of(observations: Observations) -> Law:
    """The law of the observed tokens, scales of the layer as they are; there must be one kernel for all networks."""
    o = observations
    if o.layer is None:
        raise unusable("layer", "observations with a described layer", "none", "give it: Observations(..., layer=...)")
    if o.kernel is None or o.kernel.ndim == 3:
        raise unusable("kernel", "one kernel for all networks", "one for each network, or none")
    t, tokens = o.kernel.shape[-1], o.tokens
    if np.array_equal(tokens, np.arange(t)):
        return Law(o.layer, o.kernel)
    return Law(o.layer.rows(tokens, t), o.kernel, o.kernel[np.ix_(tokens, tokens)])


def told(layer: Architecture) -> dict[str, Any]:
    """A layer in words and numbers, flat: of arrays whether they are there; a scale for each head only where heads differ.

    Of what few layers have, windows, norms, caps and sinks, only that which this one has.
    """
    record: dict[str, Any] = {"heads": layer.heads, "head_dim": layer.head_dim, "key_value_heads": layer.groups}
    for name in SCALES:
        scale = np.asarray(getattr(layer, name), float)
        record[name] = float(scale[0]) if np.ptp(scale) == 0 else scale.tolist()
    record |= {name: word for name in WORDS if (word := getattr(layer, name)) is not None}
    record["mask"] = layer.mask if isinstance(layer.mask, str) else "none" if layer.mask is None else "given"
    record |= {name: getattr(layer, name) is not None for name in ARRAYS if name not in NEW}
    newer = {name: getattr(layer, name) for name in (*COUNTS, *ARRAYS) if name in NEW}
    return record | {name: np.asarray(x).tolist() for name, x in newer.items() if x is not None and (name != "qk_eps" or x)}
