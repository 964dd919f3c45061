"""Networks to look at: a model as it is, or drawn anew by its own initialiser, or built anew by a user's function."""

import inspect
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from hierattn.base.errors import unusable
from hierattn.frameworks.protocol import FRAMEWORKS, Framework


def first_network(model: Any, inputs: Any, networks: int, seed: int) -> tuple[Any, Framework, Any]:
    """The first network, its framework, and inputs. A model that is looked at alone stays as it is."""
    framework = framework_of(model)
    if framework is not None and networks == 1:
        framework.check_mode(model)
        network = model
    elif framework is not None:
        network = framework.fresh(model, seed)
    elif callable(model):
        known = import_module("hierattn.frameworks.torch_layers") if "torch" in sys.modules else None
        returned = known.built(_call(model, seed), seed) if known else _call(model, seed)()
        network, given = returned if isinstance(returned, tuple) else (returned, None)
        framework = framework_of(network)
        if framework is known is not None:
            network.eval()
        elif framework is not None:  # whose generator had no seed yet
            network = next_network(model, framework, seed)
        inputs = given if inputs is None else inputs
    if framework is None:
        made = f"one that returns {type(network).__name__}" if callable(model) else type(model).__name__
        raise unusable("model", "a PyTorch or Flax model, or a function that builds one", made)
    if inputs is None:
        raise unusable("inputs", "arguments of a call of the model", "none", "or let the function return (model, inputs)")
    return network, framework, inputs


def next_network(model: Any, framework: Framework, seed: int) -> Any:
    """One more network."""
    if framework_of(model) is not None:
        return framework.fresh(model, seed)
    returned = framework.built(_call(model, seed), seed)
    network = returned[0] if isinstance(returned, tuple) else returned
    network.eval()
    return network


def framework_of(model: Any) -> Framework | None:
    """The file that knows this kind of model, if it is one; a class is a function that builds one."""
    for base in () if isinstance(model, type) else type(model).__mro__:
        if base.__module__ in FRAMEWORKS and base.__module__ in sys.modules:
            return import_module(f"hierattn.frameworks.{FRAMEWORKS[base.__module__]}")
    return None


def _call(build: Callable[..., Any], seed: int) -> Callable[[], Any]:
    """A function without arguments: a seed is given to one that has an argument of that name, or needs one of any."""
    made = build.__init__ if isinstance(build, type) else build  # type: ignore[misc]
    try:
        options = list(inspect.signature(made).parameters.values())[isinstance(build, type) :]
    except ValueError:  # one that does not tell its arguments, such as a partial AutoModel.from_config, has them all
        return build
    if "seed" in [x.name for x in options]:
        return partial(build, seed=seed)
    needed = [x for x in options if x.default is x.empty and x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    return partial(build, seed) if needed else build


def seed_of(seed: int, network: int) -> int:
    """A seed for every network: the first ones are the same however many there are."""
    return int(np.random.SeedSequence([seed, network]).generate_state(1)[0] >> 1)
