"""PyTorch: networks drawn anew by their own initialisers, watched by forward hooks; torch.nn.MultiheadAttention."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from hierattn.base.errors import unusable
from hierattn.frameworks.hugging_face import latent
from hierattn.frameworks.hugging_face import layers as hugging_face
from hierattn.frameworks.latent_runs import LatentRun
from hierattn.frameworks.runs import Linear, Run, mask_and_bias, not_run
from hierattn.frameworks.sdpa import reading as sdpa
from hierattn.frameworks.sdpa.listening import callers
from hierattn.frameworks.torch_hooks import Call, Reading, array, run, watch

__all__ = ["built", "check_mode", "fresh", "hold", "layers", "look", "modules", "read", "run"]
HELD = "relative_attention_bias"  # parameters that are part of the description: every network has those of the first


def modules(model: nn.Module) -> dict[str, str]:
    """Names and classes of all parts of a model."""
    return {name: type(module).__name__ for name, module in model.named_modules()}


def layers(model: nn.Module, inputs: Any) -> list[str]:
    """Names of the layers that can be read: those that are recognised, and others that call scaled_dot_product_attention."""
    known = {name for name, module in model.named_modules() if _reading(module) is not None}

    def inside(name: str) -> bool:
        return any(name == owner or owner == "" or name.startswith(f"{owner}.") for owner in known)

    others = {name for name in callers(model, inputs) if not inside(name)}
    return [name for name, _ in model.named_modules() if name in known | others]


def read(model: nn.Module, name: str, inputs: Any) -> Run | LatentRun:
    """Run the model, and read the layer of this name."""
    reading = _reading(model.get_submodule(name))
    if reading is None:
        return sdpa.read(model, name, inputs)
    calls = watch(model, reading.watched, inputs)
    if set(calls) != set(reading.watched):
        raise not_run(name)
    return reading.read(calls)


def look(model: nn.Module, name: str, inputs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Run the model: the first argument of a part, and what it returned."""
    calls = watch(model, {"layer": model.get_submodule(name)}, inputs)
    if not calls:
        raise not_run(name)
    X, y = (array(x) for x in (calls["layer"].input, calls["layer"].output))
    return X.reshape(-1, *X.shape[-2:]), y.reshape(-1, *y.shape[-2:])


def _reading(module: nn.Module) -> Reading | None:
    return recognise(module) or hugging_face.recognise(module) or latent.recognise(module)


def recognise(module: nn.Module) -> Reading | None:
    """How to read PyTorch's own layer; None for any other module."""
    if not isinstance(module, nn.MultiheadAttention):
        return None
    return Reading({"layer": module}, lambda calls: _multihead(module, calls["layer"]))


def fresh(model: nn.Module, seed: int) -> nn.Module:
    """The model with weights drawn anew: Hugging Face's from their config, PyTorch's own part by part, inner ones first."""
    with _seeded(seed):
        if hasattr(model, "config") and hasattr(model, "init_weights"):
            return type(model)(model.config).eval()
        others = [type(module).__name__ for module in model.modules() if not type(module).__module__.startswith("torch.nn")]
        if others:
            remedy = "give a function that builds the model"
            raise unusable("model", "parts of torch.nn, whose initialisers are known", ", ".join(sorted(set(others))), remedy)
        again = copy.deepcopy(model)
        for module in reversed(list(again.modules())):
            for name in ("reset_parameters", "_reset_parameters"):
                if hasattr(module, name):
                    getattr(module, name)()
        return again.eval()


def built(build: Callable[[], nn.Module], seed: int) -> Any:
    """What a user's function returns, called with PyTorch's generator at this seed."""
    with _seeded(seed):
        return build()


def hold(model: nn.Module, first: nn.Module) -> bool:
    """Give a network those parameters of the first that the description fixes; are there any?"""
    kept = {name: value for name, value in first.named_parameters() if HELD in name}
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name in kept:
                value.copy_(kept[name])
    return bool(kept)


def check_mode(model: nn.Module) -> None:
    """Outputs must be those of the weights alone."""
    for name, module in model.named_modules():
        words = ("p",) if isinstance(module, nn.modules.dropout._DropoutNd) else ("dropout", "attention_dropout")
        rates = [getattr(module, word, 0.0) for word in words]
        rate = max([x for x in rates if isinstance(x, float)], default=0.0)
        if module.training and rate > 0:
            remedy = "call model.eval() first"
            raise unusable("model", "dropout switched off", f"a rate of {rate:g} in {name or type(module).__name__}", remedy)


def _multihead(module: nn.MultiheadAttention, call: Call) -> Run:
    """What a call of MultiheadAttention says."""
    given, name = call.arguments, "MultiheadAttention"
    if given["value"] is not given["key"]:
        raise unusable(name, "keys and values of the same inputs", "different ones", "pass one tensor as both")

    def batched(x: torch.Tensor) -> np.ndarray:
        return array(x)[None] if x.dim() == 2 else array(x if module.batch_first else x.transpose(0, 1))

    X = batched(given["key"])
    X_q = X if given["query"] is given["key"] else batched(given["query"])
    n, packed = module.embed_dim, module.in_proj_weight
    parts = packed.chunk(3) if packed is not None else (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    biases = 3 * [None] if module.in_proj_bias is None else [array(b) for b in module.in_proj_bias.chunk(3)]
    maps = {x: Linear(array(W).T, b) for x, W, b in zip("qkv", parts, biases, strict=True)}
    maps["o"] = Linear(array(module.out_proj.weight).T, None if module.out_proj.bias is None else array(module.out_proj.bias))
    xavier = {x: 2 / sum((parts[i] if packed is None else packed).shape) for i, x in enumerate("qkv")}
    (batch, q, _), k = X_q.shape, X.shape[1]
    allowed, bias = mask_and_bias(_added(given, batch, module.num_heads, q, k), batch, q, k, name)
    initialisers: dict[str, tuple[float, ...]] = {x: (variance,) for x, variance in xavier.items()} | {"o": (1 / (3 * n),)}
    y = batched(call.output)
    return Run(X_q, X, y, maps, module.num_heads, module.head_dim**-0.5, allowed, bias, initialisers=initialisers)


def _added(given: dict[str, Any], batch: int, heads: int, q: int, k: int) -> np.ndarray:
    """What masks add to the scores; in boolean ones True forbids."""
    added = np.zeros((batch, 1, q, k))
    for name, shape in (("attn_mask", (-1, heads, q, k)), ("key_padding_mask", (-1, 1, 1, k))):
        mask = given.get(name)
        if mask is not None:
            mask = array(mask)
            mask = np.where(mask, -np.inf, 0.0) if mask.dtype == bool else mask
            added = added + (mask if mask.ndim == 2 and name == "attn_mask" else mask.reshape(shape))
    return added


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """PyTorch's generator at a seed, and afterwards as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
