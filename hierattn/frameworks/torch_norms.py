"""Norms of queries and keys in PyTorch: what kind a module is, by its own numbers, whatever it is called."""

from typing import Any

import numpy as np
import torch
from torch import nn

from hierattn.base.errors import unusable
from hierattn.frameworks.runs import BY_HAND, Norm
from hierattn.frameworks.torch_hooks import Call, array

EPS = ("eps", "variance_epsilon", "variance_eps", "epsilon")  # what libraries call it
SAME = 1e-5  # relative to outputs of order one, in single precision


def norm_of(module: nn.Module, x: np.ndarray, y: np.ndarray) -> Norm | None:
    """The norm over the last axis that made y of x, or None: y = g (x - m) / sqrt(mean (x - m)^2 + eps), m zero or their mean.

    The gain g is the module's weight w, or 1 + w as in Gemma, or 1.
    """
    x, y = x.astype(float), y.astype(float)
    eps = next((found for name in EPS if isinstance(found := getattr(module, name, None), float)), None)
    eps = float(torch.finfo(torch.float32).eps) if eps is None else eps  # what torch.nn.RMSNorm(eps=None) does
    weight: Any = getattr(module, "weight", None)
    w = np.ones(x.shape[-1]) if weight is None else array(weight).astype(float)
    if w.shape != x.shape[-1:] or y.shape != x.shape:
        return None
    for kind, centred in (("rms", x), ("layer", x - x.mean(axis=-1, keepdims=True))):
        unit = centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + eps)
        for gain in (w, 1 + w):
            if np.abs(unit * gain - y).max() <= SAME * np.abs(y).max():
                return Norm(kind, gain, eps)
    return None


def norms_of(parts: dict[str, nn.Module], calls: dict[str, Call], name: str) -> dict[str, Norm]:
    """The same of modules that are known to be norms, by name."""
    found = {}
    for key, module in parts.items():
        norm = norm_of(module, *(array(x) for x in (calls[key].input, calls[key].output)))
        if norm is None:
            what = f"{type(module).__name__}, which does something else"
            raise unusable(name, "queries and keys divided by their root mean square, or no norms", what, BY_HAND)
        found[key] = norm
    return found


def of_both(q: Norm | None, k: Norm | None, heads: int, groups: int, head_dim: int, name: str) -> tuple[Norm, Norm] | None:
    """Norms of queries and keys as one step of a layer: over each head, or over all of them."""
    if q is None and k is None:
        return None
    if q is None or k is None:
        raise unusable(name, "norms of queries and keys", f"one of {'keys' if q is None else 'queries'} alone", BY_HAND)
    sizes = len(q.gain), len(k.gain)
    if sizes == (head_dim, head_dim) and q.kind == k.kind:
        return q, k
    if sizes == (heads * head_dim, groups * head_dim) and q.kind == k.kind == "rms":
        return q._replace(kind="rms_all"), k._replace(kind="rms_all")
    got = f"{q.kind} over {sizes[0]} and {k.kind} over {sizes[1]}"
    raise unusable(name, "one kind of norm over the coordinates of each head, or root mean squares over all", got, BY_HAND)
