"""The law that observations should follow if their layer is described: no parameter is free."""

import numpy as np

from hierattn.base.errors import unusable
from hierattn.law.law import Law
from hierattn.layer.architecture import Architecture
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
    return Law(rows_of(o.layer, tokens, t), o.kernel, o.kernel[np.ix_(tokens, tokens)])


def rows_of(layer: Architecture, tokens: np.ndarray, t: int) -> Architecture:
    """A layer of t tokens as the queries of some of them see it: their rows of mask and bias."""
    if layer.rotary is not None:
        raise unusable("tokens", "all of the kernel's tokens in order for rotary embeddings", tokens.tolist())
    mask = None if layer.mask is None else np.asarray(layer.allowed(t, t))[tokens]
    return layer.replace(mask=mask, bias=None if layer.bias is None else layer.bias[..., tokens, :])
