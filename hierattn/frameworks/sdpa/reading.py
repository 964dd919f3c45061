"""A module that calls scaled_dot_product_attention, as a run: its linear maps, norms and positions found by tracing back."""

from typing import Any

import numpy as np
from torch import nn

from hierattn.base.errors import unusable
from hierattn.frameworks.hugging_face.initialisers import initialisers
from hierattn.frameworks.runs import BY_HAND, Linear, Run, mask_and_bias, not_run
from hierattn.frameworks.sdpa.listening import Heard, Map, Product, listen
from hierattn.frameworks.sdpa.tracing import Source, columns_of, match, source
from hierattn.frameworks.torch_norms import of_both


def read(model: nn.Module, name: str, inputs: Any) -> Run:
    """Run the model, and read the module of this name."""
    module = model.get_submodule(name)
    heard, said = listen(model, name, inputs), name or type(module).__name__
    if not heard.products:
        raise not_run(said)
    if len(heard.products) > 1:
        raise unusable(said, "one call of scaled_dot_product_attention", len(heard.products), "name the parts that make them")
    if heard.products[0].dropout > 0:
        raise unusable(said, "dropout switched off", f"dropout_p {heard.products[0].dropout:g}", "call model.eval() first")
    return _run(module, heard, _four(heard.products[0], heard), said)


def _four(call: Product, heard: Heard) -> Product:
    """The call with arrays (batch, head, token, coordinate); of three axes the first is of sequences, or of heads."""
    if call.query.ndim == 4:
        return call
    if call.query.ndim != 3:
        raise unusable("query", "3 or 4 axes in scaled_dot_product_attention", call.query.shape, BY_HAND)
    for axis in (1, 0):
        query, key, value, output = (np.expand_dims(x, axis) for x in (call.query, call.key, call.value, call.output))
        wide = call._replace(query=query, key=key, value=value, output=output)
        if source(wide.value, heard) is not None:
            break
    mask = call.mask if call.mask is None or call.mask.ndim < 3 else np.expand_dims(call.mask, axis)
    return wide._replace(mask=mask)


def _run(module: nn.Module, heard: Heard, call: Product, name: str) -> Run:
    batch, heads, q, n_H = call.query.shape
    k = call.key.shape[2]
    found = {x: _found(x, value, heard, name) for x, value in zip("qkv", call[:3], strict=True)}
    kept = {x: _owners(found[x].columns, name) for x in "qkv"}
    if not np.array_equal(kept["k"], kept["v"]):
        raise unusable(name, "keys and values that are shared by the same heads", "by others", BY_HAND)
    if (found["q"].rotary is None) != (found["k"].rotary is None):
        raise unusable(name, "queries and keys that are both turned", "one of them alone", BY_HAND)
    X_q, X, X_v = (columns_of(found[x].map.x, batch, s)[0] for x, s in zip("qkv", (q, k, k), strict=True))
    if not np.array_equal(X, X_v):
        raise unusable(name, "keys and values of the same inputs", "different ones", BY_HAND)
    crossed = X_q.shape != X.shape or not np.array_equal(X_q, X)
    maps = {x: _columns(found[x].map, found[x].columns[kept[x]]) for x in "qkv"}
    maps["o"], y = _out(call, heard, name)
    norms = of_both(found["q"].norm, found["k"].norm, heads, len(kept["k"]), n_H, name)
    allowed, bias = mask_and_bias(_added(call, q, k), batch, q, k, name)
    factor = n_H**-0.5 if call.scale is None else float(call.scale)
    fresh = _initialisers(module, maps, heads)
    return Run(X_q if crossed else X, X, y, maps, heads, factor, allowed, bias, found["q"].rotary, norms, initialisers=fresh)


def _found(what: str, x: np.ndarray, heard: Heard, name: str) -> Source:
    found = source(x, heard)
    words = {"q": "queries", "k": "keys", "v": "values"}
    if found is None or (what == "v" and (found.norm is not None or found.rotary is not None)):
        by = "alone" if what == "v" else "by norms of torch.nn's kinds and rotary embeddings alone"
        raise unusable(name, f"{words[what]} made of a linear map's outputs {by}", "others", BY_HAND)
    return found


def _owners(columns: np.ndarray, name: str) -> np.ndarray:
    """The first of every set of neighbouring heads that share their columns, as many in each."""
    first = np.flatnonzero(np.r_[True, (columns[1:] != columns[:-1]).any(axis=1)])
    own = columns[first]
    if len(np.unique(own)) < own.size or np.any(np.diff(np.r_[first, len(columns)]) != len(columns) // len(first)):
        expected = "heads with columns of their own, or shared by as many neighbours each"
        raise unusable(name, expected, "others", BY_HAND)
    return first


def _columns(call: Map, columns: np.ndarray) -> Linear:
    """Of a map's matrix and bias those that make some heads."""
    chosen = columns.ravel()
    return Linear(call.W[:, chosen], None if call.b is None else call.b[chosen])


def _out(call: Product, heard: Heard, name: str) -> tuple[Linear, np.ndarray]:
    """W^O, its rows in the order of heads and coordinates, and the outputs."""
    batch, heads, q, n_H = call.output.shape
    outputs = np.moveaxis(call.output, 1, 2).reshape(batch, q, -1)
    for later in heard.maps:
        for x in columns_of(later.x, batch, q):
            rows = match(x, outputs) if x.shape[2] == heads * n_H else None
            if rows is not None:
                W = np.empty_like(later.W)
                W[rows] = later.W
                return Linear(W, later.b), columns_of(later.y, batch, q)[0]
    raise unusable(name, "a linear map of all heads' outputs", "none", BY_HAND)


def _added(call: Product, q: int, k: int) -> np.ndarray:
    """What mask and is_causal add to the scores; in boolean masks True allows."""
    added = np.where(np.tri(q, k, dtype=bool), 0.0, -np.inf) if call.is_causal else np.zeros((q, k))
    if call.mask is not None:
        added = added + (np.where(call.mask, 0.0, -np.inf) if call.mask.dtype == bool else call.mask)
    return added.reshape((1,) * (4 - added.ndim) + added.shape)


def _initialisers(module: nn.Module, maps: dict[str, Linear], heads: int) -> dict[str, tuple[float, ...]]:
    """Those of Hugging Face if there is a config, or of torch.nn.Linear: uniform, of variance 1 / (3 fan-in), biases too."""
    known = initialisers(module, maps, heads)
    usual = {name: 1 / (3 * linear.W.shape[0]) for name, linear in maps.items()}
    return {name: (*known.get(name, ()), value) for name, value in usual.items()} | {f"b_{x}": (v,) for x, v in usual.items()}
