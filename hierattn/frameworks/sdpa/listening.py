"""What a model calls while it runs: scaled_dot_product_attention, linear maps, and parts that could be norms.

Functions are listened to by a mode of PyTorch's own, so that it does not matter how a user's file has imported them.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from hierattn.frameworks.torch_hooks import array, run

MAPS = 2  # linear maps that a layer must have: one in, one out


class Product(NamedTuple):
    """A call of scaled_dot_product_attention: tensors as arrays."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    mask: np.ndarray | None
    is_causal: bool
    scale: float | None
    dropout: float
    output: np.ndarray


class Map(NamedTuple):
    """A call of a linear map."""

    x: np.ndarray
    W: np.ndarray
    b: np.ndarray | None
    y: np.ndarray


class Part(NamedTuple):
    """A call of a module that gave as many numbers as it got."""

    module: nn.Module
    x: np.ndarray
    y: np.ndarray


class Heard(NamedTuple):
    """All calls inside one module, in order."""

    products: list[Product]
    maps: list[Map]
    parts: list[Part]


def callers(model: nn.Module, inputs: Any) -> list[str]:
    """Names of the modules that call scaled_dot_product_attention: of each call the innermost that calls linear maps too."""
    maps: Counter[str] = Counter()
    found: list[list[str]] = []

    def hear(function: Any, stack: list[str], *call: Any) -> None:
        if function is functional.linear:
            maps.update(stack)
        elif function is functional.scaled_dot_product_attention:
            found.append(stack[::-1])

    with _listening(model, hear), torch.no_grad():
        run(model, inputs)
    owners = [next((name for name in names if maps[name] >= MAPS), None) for names in found]
    return [name for name in dict.fromkeys(owners) if name is not None]


def listen(model: nn.Module, name: str, inputs: Any) -> Heard:
    """Run the model, and hear what is called inside the module of this name."""
    heard = Heard([], [], [])

    def hear(function: Any, stack: list[str], args: tuple, kwargs: dict[str, Any], returned: Any) -> None:
        if name not in stack:
            return
        if function is functional.scaled_dot_product_attention:
            heard.products.append(_product(returned, *args, **kwargs))
        elif function is functional.linear:
            heard.maps.append(_map(returned, *args, **kwargs))
        elif isinstance(function, nn.Module) and len(args) == 1 and _alike(args[0], returned):
            heard.parts.append(Part(function, _copied(args[0]), _copied(returned)))

    with _listening(model, hear), torch.no_grad():
        run(model, inputs)
    return heard


class _Mode(TorchFunctionMode):
    """Tells of every function of PyTorch that is called."""

    def __init__(self, hear: Callable[..., None]) -> None:
        super().__init__()
        self.hear = hear

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        self.hear(func, args, kwargs or {}, returned)
        return returned


@contextmanager
def _listening(model: nn.Module, hear: Callable[..., None]) -> Iterator[None]:
    """Tell `hear` of functions and modules that are called, with names of the modules that run then, the innermost last."""
    stack: list[str] = []
    hearing = False

    def told(function: Any, args: tuple, kwargs: dict[str, Any], returned: Any) -> None:
        nonlocal hearing
        if not hearing and (isinstance(function, nn.Module) or function in HEARD):
            hearing = True  # what is done with a call is no call of the model
            try:
                hear(function, stack, args, kwargs, returned)
            finally:
                hearing = False

    def leave(module: nn.Module, args: tuple, kwargs: dict[str, Any], returned: Any) -> None:
        told(module, args, kwargs, returned)
        stack.pop()

    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda module, args, name=name: stack.append(name)))
        handles.append(module.register_forward_hook(leave, with_kwargs=True))
    try:
        with _Mode(told):
            yield
    finally:
        for handle in handles:
            handle.remove()


HEARD = (functional.scaled_dot_product_attention, functional.linear)


def _product(
    returned: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Product:
    """Arguments as PyTorch's signature has them; keys that heads share are seen from their shapes."""
    mask = None if attn_mask is None else _copied(attn_mask)
    arrays = (_copied(query), _copied(key), _copied(value), mask)
    return Product(*arrays, is_causal, scale, float(dropout_p), _copied(returned))


def _map(y: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Map:  # noqa: A002
    return Map(_copied(input), _copied(weight).T, None if bias is None else _copied(bias), _copied(y))


def _alike(x: Any, y: Any) -> bool:
    return isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and x.shape == y.shape and x.is_floating_point()


def _copied(x: torch.Tensor) -> np.ndarray:
    """As it is now: a model may change it in place."""
    return np.array(array(x))
