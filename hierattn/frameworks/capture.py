"""Outputs of a real model's attention layer, over many networks or many sequences, with the law that they should follow."""

import inspect
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from hierattn.base.errors import check_counts, unusable
from hierattn.frameworks import runs
from hierattn.frameworks.description import Description, Grams, Tally, by_hand, describe
from hierattn.layer.architecture import Architecture
from hierattn.observed.kernels import check_size
from hierattn.observed.observations import KEPT, Observations

FRAMEWORKS = {"torch.nn.modules.module": "torch_layers", "flax.nnx.module": "flax_layers"}  # where their base classes are
SHOWN = 12  # parts of a model that a message names


class Captured(Observations):
    """Observations that were captured, and the description of the layer they come from."""

    description: Description


def capture(
    model: Any,
    inputs: Any = None,
    *,
    networks: int = 1,
    module: int | str = 0,
    coordinates: int | None = None,
    layer: Architecture | None = None,
    seed: int = 0,
    advance: Callable[[int], Any] = lambda done: None,
) -> Captured:
    """Run a model, and observe one of its attention layers.

    model        a PyTorch or Flax model, or a function that builds one anew (with a seed, if it takes an argument), and may
                 return (model, inputs). With networks > 1 a model is not looked at as it is, but drawn anew by its own
                 initialiser: Hugging Face's from their config, parts of torch.nn as by default; any other needs a function
    inputs       arguments of a call of the model: an array, a tuple or a dict. Sequences of a batch are tokens of one network
    module       which attention layer: its place among those that are recognised, or its name
    coordinates  raw outputs kept of every network (as many as fit); all of them enter the sufficient statistics
    layer        describes a module that is not recognised; `module` must then be its name
    advance      called with the number of networks just done
    """
    check_counts(networks=networks, **({} if coordinates is None else {"coordinates": coordinates}))
    first, framework, inputs = _first(model, inputs, networks, _seed(seed, 0))
    name = _chosen(framework, first, module, layer)
    tally, grams, collected = Tally(), Grams(), None
    reference: runs.Run | None = None
    held = False
    for m in range(networks):
        network = first if m == 0 else _again(model, framework, _seed(seed, m))
        held |= m > 0 and framework.hold(network, first)
        if layer is None:
            run = framework.read(network, name, inputs)
            if reference is None:
                runs.check(run, name or type(first).__name__)
            else:
                _check_next(run, reference, m)
            reference = reference or run
            tally.add(run)
            grams.add(run.X_q, run.X)
            y = run.y if run.maps["o"].b is None else run.y - run.maps["o"].b
        else:
            X, y = framework.look(network, name, inputs)
            grams.add(X, X)
        collected = collected or _Collected(networks, y.shape[0] * y.shape[1], y.shape[2], coordinates)
        collected.add(m, y.reshape(-1, y.shape[-1]))
        advance(1)
    assert collected is not None
    where = f"{name or 'the model itself'} ({framework.modules(first)[name]})"
    description, K = by_hand(layer, grams, where) if layer else describe(reference, tally, grams, where)  # type: ignore[arg-type]
    if held and description.layer.bias is not None:
        remark = "the learned position bias is drawn once: all networks have that of the first"
        description = Description(**vars(description) | {"remarks": (*description.remarks, remark)})
    return collected.observations(description, K)


def _first(model: Any, inputs: Any, networks: int, seed: int) -> tuple[Any, ModuleType, Any]:
    """The first network, its framework, and inputs. A model that is looked at alone stays as it is."""
    framework = _framework(model)
    if framework is not None and networks == 1:
        framework.check_mode(model)
        network = model
    elif framework is not None:
        network = framework.fresh(model, seed)
    elif callable(model):
        known = import_module("hierattn.frameworks.torch_layers") if "torch" in sys.modules else None
        returned = known.built(_call(model, seed), seed) if known else _call(model, seed)()
        network, given = returned if isinstance(returned, tuple) else (returned, None)
        framework = _framework(network)
        if framework is known is not None:
            network.eval()
        elif framework is not None:  # whose generator had no seed yet
            network = _again(model, framework, seed)
        inputs = given if inputs is None else inputs
    if framework is None:
        made = f"one that returns {type(network).__name__}" if callable(model) else type(model).__name__
        raise unusable("model", "a PyTorch or Flax model, or a function that builds one", made)
    if inputs is None:
        raise unusable("inputs", "arguments of a call of the model", "none", "or let the function return (model, inputs)")
    return network, framework, inputs


def _again(model: Any, framework: ModuleType, seed: int) -> Any:
    """One more network."""
    if _framework(model) is not None:
        return framework.fresh(model, seed)
    returned = framework.built(_call(model, seed), seed)
    network = returned[0] if isinstance(returned, tuple) else returned
    network.eval()
    return network


def _framework(model: Any) -> ModuleType | None:
    """The file that knows this kind of model, if it is one; a class is a function that builds one."""
    for base in () if isinstance(model, type) else type(model).__mro__:
        if base.__module__ in FRAMEWORKS and base.__module__ in sys.modules:
            return import_module(f"hierattn.frameworks.{FRAMEWORKS[base.__module__]}")
    return None


def _call(build: Callable[..., Any], seed: int) -> Callable[[], Any]:
    """A function without arguments: a seed is given to one that has an argument of that name, or needs one of any."""
    made = build.__init__ if isinstance(build, type) else build  # type: ignore[misc]
    options = list(inspect.signature(made).parameters.values())[isinstance(build, type) :]
    if "seed" in [x.name for x in options]:
        return partial(build, seed=seed)
    needed = [x for x in options if x.default is x.empty and x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    return partial(build, seed) if needed else build


def _seed(seed: int, network: int) -> int:
    """A seed for every network: the first ones are the same however many there are."""
    return int(np.random.SeedSequence([seed, network]).generate_state(1)[0] >> 1)


def _chosen(framework: ModuleType, model: Any, module: int | str, layer: Architecture | None) -> str:
    """The name of the part that is looked at."""
    parts = framework.modules(model)
    if layer is not None:
        if module not in parts:
            raise unusable(
                "module", "the name of a part of the model for a layer described by hand", repr(module), _list(parts)
            )
        return str(module)
    known = framework.layers(model)
    if not known:
        raise unusable("model", "an attention layer that is recognised", f"none among {_list(parts)}", runs.BY_HAND)
    if isinstance(module, str) and module not in known:
        raise unusable("module", f"one of {_list({name: parts[name] for name in known})}", repr(module), runs.BY_HAND)
    if not isinstance(module, str) and not 0 <= module < len(known):
        raise unusable("module", f"a number below {len(known)}: {', '.join(known)}", module)
    return module if isinstance(module, str) else known[module]


def _list(parts: dict[str, str]) -> str:
    """Parts of a model with their classes, those that sound like attention first."""
    order = sorted(parts, key=lambda name: "att" not in f"{name} {parts[name]}".lower())
    shown = [f"{name or 'the model itself'} ({parts[name]})" for name in order[:SHOWN]]
    return ", ".join(shown) + (f" and {len(parts) - SHOWN} others" if len(parts) > SHOWN else "")


def _check_next(run: runs.Run, first: runs.Run, network: int) -> None:
    """Networks must differ in their weights and in nothing else that the description says."""
    if not run.same_setting(first):
        raise unusable("model", "the same heads, mask and positions in all networks", f"others in network {network}")
    if np.array_equal(run.maps["q"].W, first.maps["q"].W):
        remedy = "give a function that builds the model, with the seed as its argument"
        raise unusable("model", "weights drawn anew for every network", f"those of the first in network {network}", remedy)


class _Collected:
    """Sufficient statistics, and the leading coordinates, of network after network."""

    def __init__(self, networks: int, tokens: int, width: int, coordinates: int | None) -> None:
        check_size("networks", networks, tokens)
        room = max(1, KEPT // (4 * networks * tokens))
        kept = min(width, room if coordinates is None else coordinates)
        self.S = np.empty((networks, tokens, tokens))
        self.outputs, self.width = np.empty((networks, tokens, kept), np.float32), width

    def add(self, m: int, y: np.ndarray) -> None:
        """The outputs (token, coordinate) of network m."""
        Y = y.astype(float)
        self.S[m], self.outputs[m] = Y @ Y.T, y[:, : self.outputs.shape[-1]]

    def observations(self, description: Description, K: np.ndarray) -> Captured:
        """All of it."""
        layer, kernel = description.layer, K[0] if len(K) == 1 else K
        plain = Observations(
            self.outputs, kernel, tokens=description.tokens, heads=layer.heads, mask=layer.mask, layer=layer.replace(mask=None)
        )
        found = object.__new__(Captured)
        more = {"S": self.S, "coordinates": self.width, "source": description.module, "description": description}
        found._set(**vars(plain) | more)
        return found
