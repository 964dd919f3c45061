"""PyTorch modules watched by forward hooks while a model runs: what every reader of layers is made of."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from hierattn.frameworks.latent_runs import LatentRun
from hierattn.frameworks.runs import Run


class Call(NamedTuple):
    """One call of a module: its arguments by name, and what it returned."""

    arguments: dict[str, Any]
    returned: Any

    @property
    def input(self) -> torch.Tensor:
        """The first argument."""
        return next(iter(self.arguments.values()))

    @property
    def output(self) -> torch.Tensor:
        """What was returned, or the first of several things."""
        return self.returned[0] if isinstance(self.returned, tuple) else self.returned


class Reading(NamedTuple):
    """How a layer is read: modules to watch, and what their calls say."""

    watched: dict[str, nn.Module]
    read: Callable[[dict[str, Call]], Run | LatentRun]


def watch(model: nn.Module, watched: dict[str, nn.Module], inputs: Any) -> dict[str, Call]:
    """Run the model on inputs and return the last call of every watched module."""
    calls: dict[str, Call] = {}

    def hook(name: str) -> Callable[..., None]:
        def record(module: nn.Module, args: tuple, kwargs: dict, returned: Any) -> None:
            bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
            rest = bound.pop("kwargs", {})
            calls[name] = Call({**bound, **rest}, returned)

        return record

    handles = [module.register_forward_hook(hook(name), with_kwargs=True) for name, module in watched.items()]
    try:
        with torch.no_grad():
            run(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def run(model: nn.Module, inputs: Any) -> Any:
    """Call a model with arguments: a dict, a tuple, or one array, which for MultiheadAttention is queries, keys and values."""
    kind = next((parameter.dtype for parameter in model.parameters()), torch.float32)

    def tensor(x: Any) -> Any:
        x = torch.as_tensor(np.array(x)) if hasattr(x, "__array__") and not isinstance(x, torch.Tensor) else x
        return x.to(kind) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    if isinstance(inputs, dict):
        same = {id(value): tensor(value) for value in inputs.values()}  # one array stays one: queries that are the keys
        return model(**{name: same[id(value)] for name, value in inputs.items()})
    arguments = [tensor(x) for x in (inputs if isinstance(inputs, tuple) else (inputs,))]
    return model(*(3 * arguments if isinstance(model, nn.MultiheadAttention) and len(arguments) == 1 else arguments))


def array(x: Any) -> np.ndarray:
    """A tensor as an array (of float32, where NumPy has not its type)."""
    x = x.detach().cpu()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()
