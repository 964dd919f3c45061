"""Flax: nnx.MultiHeadAttention, alone or inside a model, watched while it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from flax import nnx

from hierattn.base.errors import unusable
from hierattn.frameworks.runs import Linear, Norm, Run, mask_and_bias, not_run


def modules(model: nnx.Module) -> dict[str, str]:
    """Names and classes of all parts of a model, in the order of their names; numbers in theirs."""
    parts = [(tuple(map(str, path)), type(module).__name__) for path, module in nnx.iter_modules(model)]
    return {".".join(path): name for path, name in sorted(parts, key=lambda found: [word.zfill(8) for word in found[0]])}


def part(model: nnx.Module, name: str) -> nnx.Module:
    """The part of this name."""
    return next(module for path, module in nnx.iter_modules(model) if ".".join(map(str, path)) == name)


def layers(model: nnx.Module, inputs: Any) -> list[str]:
    """Names of the layers that can be read."""
    return [name for name in modules(model) if isinstance(part(model, name), nnx.MultiHeadAttention)]


def read(model: nnx.Module, name: str, inputs: Any) -> Run:
    """Run the model, and read the layer of this name."""
    layer = part(model, name)
    return _multihead(layer, *watch(model, layer, name, inputs))  # type: ignore[arg-type]


def look(model: nnx.Module, name: str, inputs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Run the model: the first argument of a part, and what it returned."""
    args, kwargs, returned = watch(model, part(model, name), name, inputs)
    first = returned[0] if isinstance(returned, tuple) else returned
    return _batched(args[0] if args else next(iter(kwargs.values()))), _batched(first)


def fresh(model: nnx.Module, seed: int) -> nnx.Module:
    """Flax modules do not keep their initialisers."""
    raise unusable("model", "a function of a seed that builds the model", f"one {type(model).__name__}")


def built(build: Callable[[], Any], seed: int) -> Any:
    """What a user's function returns; the seed is its argument already."""
    return build()


def hold(model: nnx.Module, first: nnx.Module) -> bool:
    """Nothing that the description fixes is drawn at random."""
    return False


def check_mode(model: nnx.Module) -> None:
    """Outputs must be those of the weights alone."""
    for path, module in nnx.iter_modules(model):
        rate = float(getattr(module, "dropout_rate", getattr(module, "rate", 0.0)) or 0.0)
        if rate > 0 and not getattr(module, "deterministic", False):
            where = ".".join(map(str, path)) or type(module).__name__
            raise unusable("model", "dropout switched off", f"a rate of {rate:g} in {where}", "call model.eval() first")


def watch(model: nnx.Module, module: nnx.Module, name: str, inputs: Any) -> tuple[tuple, dict[str, Any], Any]:
    """Run the model on inputs: arguments and result of a part's last call."""
    calls: list[tuple[tuple, dict[str, Any], Any]] = []
    with _watched(module, lambda *call: calls.append(call)):
        run(model, inputs)
    if not calls:
        raise not_run(name)
    return calls[-1]


def run(model: nnx.Module, inputs: Any) -> Any:
    """Call a model with arguments: a dict, a tuple, or one array."""
    if isinstance(inputs, dict):
        return model(**inputs)  # type: ignore[operator]
    return model(*(inputs if isinstance(inputs, tuple) else (inputs,)))  # type: ignore[operator]


def _multihead(module: nnx.MultiHeadAttention, args: tuple, kwargs: dict[str, Any], returned: Any) -> Run:
    """What a call of nnx.MultiHeadAttention says."""
    name = "MultiHeadAttention"
    inputs = dict(zip(("inputs_q", "inputs_k", "inputs_v"), args, strict=False)) | kwargs
    query = inputs["inputs_q"]
    key = query if inputs.get("inputs_k") is None else inputs["inputs_k"]
    if inputs.get("inputs_v") is not None and inputs["inputs_v"] is not key:
        raise unusable(name, "keys and values of the same inputs", "different ones", "pass one array as both")
    X = _batched(key)
    X_q = X if query is key else _batched(query)
    (batch, q, _), k, H, n_H = X_q.shape, X.shape[1], module.num_heads, module.head_dim
    added = np.zeros((batch, 1, q, k))
    if inputs.get("mask") is not None:
        mask = np.asarray(inputs["mask"])
        added = added + np.where(mask.reshape(-1, *mask.shape[-3:]) if mask.ndim > 3 else mask, 0.0, -np.inf)
    if inputs.get("is_causal"):
        added = added + np.where(np.tri(q, k, dtype=bool), 0.0, -np.inf)
    allowed, bias = mask_and_bias(added, batch, q, k, name)
    maps = {x: _linear(getattr(module, word)) for x, word in zip("qkvo", ("query", "key", "value", "out"), strict=True)}
    initialisers: dict[str, tuple[float, ...]] = {}
    for x, linear in maps.items():
        initialisers[x] = (1 / linear.W.shape[0], 2 / sum(linear.W.shape))  # LeCun's, Xavier's
    norms = _norm(module.query_ln), _norm(module.key_ln)
    both = None if norms[0] is None or norms[1] is None else (norms[0], norms[1])
    return Run(X_q, X, _batched(returned), maps, H, n_H**-0.5, allowed, bias, norms=both, initialisers=initialisers)


def _norm(norm: nnx.LayerNorm | None) -> Norm | None:
    """What normalize_qk=True puts behind the maps of queries and keys: a LayerNorm of every head, without a bias."""
    if norm is None:
        return None
    gain = np.ones(norm.num_features) if norm.scale is None else np.asarray(norm.scale[...])
    return Norm("layer", gain, float(norm.epsilon))


def _linear(linear: nnx.LinearGeneral) -> Linear:
    """A LinearGeneral as one matrix: its axes of inputs, and its axes of outputs, made one each."""
    W = np.asarray(linear.kernel[...])
    fan_in = int(np.prod(linear.in_features))
    bias = None if linear.bias is None else np.asarray(linear.bias[...]).ravel()
    return Linear(W.reshape(fan_in, -1), bias)


def _batched(x: Any) -> np.ndarray:
    if isinstance(x, jax.core.Tracer):
        raise unusable("model", "a model that runs without jit", "traced values", "capture it outside jax.jit and nnx.jit")
    x = np.asarray(x)
    return x.reshape(-1, *x.shape[-2:])


@contextmanager
def _watched(module: nnx.Module, record: Callable[..., Any]) -> Iterator[None]:
    """Tell `record` of every call of this module, and of no other.

    Flax has no hooks, and Python looks `__call__` up in the class: so this one instance is given a class of its own meanwhile.
    """
    kind = type(module)

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        returned = kind.__call__(self, *args, **kwargs)  # type: ignore[operator]
        record(args, kwargs, returned)
        return returned

    object.__setattr__(module, "__class__", type(kind.__name__, (kind,), {"__call__": __call__, "__module__": kind.__module__}))
    try:
        yield
    finally:
        object.__setattr__(module, "__class__", kind)
