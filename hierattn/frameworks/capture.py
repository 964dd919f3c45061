"""Outputs of a real model's attention layer, over many networks or many sequences, with the law that they should follow."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hierattn.base.errors import check_counts, unusable
from hierattn.frameworks import runs
from hierattn.frameworks.description import Description, by_hand, describe
from hierattn.frameworks.latent_runs import LatentRun, describe_latent
from hierattn.frameworks.measured import Grams, Tally
from hierattn.frameworks.networks import first_network, next_network, seed_of
from hierattn.frameworks.protocol import Framework
from hierattn.layer.architecture import Architecture
from hierattn.observed.kernels import check_size
from hierattn.observed.observations import Observations
from hierattn.observed.statistics import Reduction, Statistics

SHOWN = 12  # parts of a model that a message names


class Captured(Observations):
    """Observations that were captured, and the description of the layer they come from."""

    description: Description

    @classmethod
    def described(cls, statistics: Statistics, description: Description, K: np.ndarray) -> "Captured":
        """Outputs of a described layer, K its kernel (network or 1, t, t)."""
        kernel, tokens = K[0] if len(K) == 1 else K, description.tokens
        layer = description.layer if isinstance(description.layer, Architecture) else None  # of latent attention: see `law`
        known: dict[str, Any] = {"layer": layer} if layer is not None else {"heads": description.layer.heads}
        found = cls.from_statistics(statistics, kernel, tokens=tokens, source=description.module, **known)
        object.__setattr__(found, "description", description)  # the class is frozen
        return found


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

    - model: a PyTorch or Flax model, or a function that builds one anew (with a seed, if it takes an argument), and may return
      (model, inputs). With networks > 1 a model is not looked at as it is, but drawn anew by its own initialiser: Hugging
      Face's from their config, parts of torch.nn as by default; any other needs a function
    - inputs: arguments of a call of the model: an array, a tuple or a dict. Sequences of a batch are tokens of one network
    - module: which attention layer: its place among those that are recognised, or its name
    - coordinates: raw outputs kept of every network (as many as fit); all of them enter the sufficient statistics
    - layer: describes a module that is not recognised; `module` must then be its name
    - advance: called with the number of networks just done
    """
    check_counts(networks=networks, **({} if coordinates is None else {"coordinates": coordinates}))
    first, framework, inputs = first_network(model, inputs, networks, seed_of(seed, 0))
    name = _chosen(framework, first, inputs, module, layer)
    watch = _Watch(framework, name, inputs, layer, coordinates)
    held = False
    for m in range(networks):
        network = first if m == 0 else next_network(model, framework, seed_of(seed, m))
        held |= m > 0 and framework.hold(network, first)
        watch.add(network, m, networks)
        advance(1)
    description, K = watch.described(f"{name or 'the model itself'} ({framework.modules(first)[name]})")
    if held and description.layer.bias is not None:
        description = description.with_remark("the learned position bias is drawn once: all networks have that of the first")
    return Captured.described(watch.reduction.statistics(), description, K)


def _chosen(framework: Framework, model: Any, inputs: Any, module: int | str, layer: Architecture | None) -> str:
    """The name of the part that is looked at."""
    parts = framework.modules(model)
    if layer is not None:
        if module not in parts:
            raise unusable(
                "module", "the name of a part of the model for a layer described by hand", repr(module), _list(parts)
            )
        return str(module)
    known = framework.layers(model, inputs)
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


def _check_next(run: Any, first: Any, network: int) -> None:
    """Networks must differ in their weights and in nothing else that the description says."""
    if not run.same_setting(first):
        raise unusable("model", "the same heads, norms, mask and positions in all networks", f"others in network {network}")
    if np.array_equal(run.maps["q"].W, first.maps["q"].W):
        remedy = "give a function that builds the model, with the seed as its argument"
        raise unusable("model", "weights drawn anew for every network", f"those of the first in network {network}", remedy)


class _Watch:
    """What was seen of one part of network after network: its outputs reduced, its inputs' kernels, its weights' moments."""

    def __init__(
        self, framework: Framework, name: str, inputs: Any, layer: Architecture | None, coordinates: int | None
    ) -> None:
        self.framework, self.name, self.inputs, self.layer, self.coordinates = framework, name, inputs, layer, coordinates
        self.tally, self.grams = Tally(), Grams()
        self.first: Any = None
        self.reduction: Reduction

    def add(self, network: Any, m: int, networks: int) -> None:
        """Run network m of so many."""
        y = self._read(network, m) if self.layer is None else self._look(network)
        y = y.reshape(1, -1, y.shape[-1])
        if not np.isfinite(y).all():
            raise unusable("model", "finite outputs", f"NaN or infinity in network {m}")
        if m == 0:
            check_size("networks", networks, y.shape[1])
            self.reduction = Reduction((networks, *y.shape[1:]), y.dtype, "outputs", self.coordinates)
        self.reduction.add(y)

    def described(self, where: str) -> tuple[Description, np.ndarray]:
        """The description, and the kernel."""
        if self.layer is not None:
            return by_hand(self.layer, self.grams, where)
        assert self.first is not None
        of_kind = describe_latent if isinstance(self.first, LatentRun) else describe
        return of_kind(self.first, self.tally, self.grams, where)

    def _read(self, network: Any, m: int) -> np.ndarray:
        run: Any = self.framework.read(network, self.name, self.inputs)
        if self.first is None:
            name = self.name or type(network).__name__
            run.check(name) if isinstance(run, LatentRun) else runs.check(run, name)
            self.first = run
        else:
            _check_next(run, self.first, m)
        self.tally.add(run)
        self.grams.add(run.X_q, run.X)
        return run.y if run.maps["o"].b is None else run.y - run.maps["o"].b

    def _look(self, network: Any) -> np.ndarray:
        X, y = self.framework.look(network, self.name, self.inputs)
        self.grams.add(X, X)
        return y
