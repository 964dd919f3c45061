"""A model's function: found by name or path, and called with what a problem knows.

A model is a NumPyro program of the arguments it names, all of them optional but the first line:

    outputs, networks, coordinates      observed outputs (network, token, coordinate), or how many to draw
    layer, K, query_kernel, tokens      the layer, the kernel of its inputs, that of the observed tokens, how many they are
    prior, width                        the priors of its parameters by name, and the networks' width

It draws the outputs as the site `y` under the plates `network` and `coordinate`.
"""

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
from numpyro import handlers

from hierattn.base.errors import InputError, unusable
from hierattn.base.loading import run_file
from hierattn.inference.problem import Problem
from hierattn.law.plates import reduced

MODELS = ("limit_law", "finite_head_dim", "infinite_heads", "linear_scaling", "kernel_unknown", "separate_kernels", "student_t")
NEEDED = ("outputs", "networks", "coordinates")  # arguments of every model


def lookup(model: str | Path) -> ModuleType:
    """A model's file: by name from hierattn.models, or by path."""
    if model in MODELS:
        return import_module(f"hierattn.models.{model}")
    path = Path(model)
    if path.suffix != ".py":
        raise unusable("model", "one of " + ", ".join(MODELS) + ", or a .py file", repr(model))
    module = run_file(path, "a function `model`")
    if not callable(getattr(module, "model", None)):
        raise InputError(f"{path}: expected a function `model`, got {', '.join(n for n in vars(module) if n[0] != '_')}")
    return module


def arguments(problem: Problem, width: int | None, observed: bool) -> dict[str, Any]:
    """What the model's function takes, by name."""
    obs, names = problem.observations, parameters_of(problem.model.model)
    known: dict[str, Any] = {"layer": problem.layer, "tokens": obs.s, "networks": obs.networks, "prior": problem.prior or None}
    if "K" in names:
        tokens = obs.tokens
        known |= {"layer": problem.observed_layer, "K": problem.K, "query_kernel": problem.K[..., tokens[:, None], tokens]}
    if "width" in names:
        if width is None:
            raise unusable("width", "the width of the networks", None, f"the model {problem.name} needs it")
        known["width"] = width
    if observed:
        basis = problem.basis if "K" in names and problem.takes_second_moments else None
        known["outputs"] = reduced(obs.S, obs.coordinates, basis) if problem.takes_second_moments else _raw(problem)
    without = [name for name in NEEDED if name not in names]
    if without:
        raise unusable("model", f"a function with the arguments {', '.join(NEEDED)}", f"one without {', '.join(without)}")
    chosen = {name: value for name, value in known.items() if name in names}
    lacking = [name for name, x in names.items() if x.default is x.empty and name not in chosen]
    if lacking:
        raise unusable("model", f"arguments among {', '.join(known)}", ", ".join(lacking), "give the others defaults")
    return chosen


def parameters_of(function: Any) -> Any:
    """Of a model's function, beneath NumPyro's handlers; beneath `functools.wraps` Python looks by itself."""
    while hasattr(function, "fn"):
        function = function.fn
    return inspect.signature(function).parameters


def _raw(problem: Problem) -> np.ndarray:
    if not problem.observations.complete:
        remedy = "give fewer coordinates"
        raise unusable("outputs", "outputs that fit in memory whole", f"{problem.observations.coordinates} coordinates", remedy)
    return np.asarray(problem.observations.outputs, float)


def sites(problem: Problem, kwargs: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Names of the parameters, drawn or computed, and of the latent variables that every network has for itself."""
    found: dict[str, Any] = {}
    traced = handlers.trace(handlers.seed(problem.model.model, 0))
    jax.eval_shape(lambda: found.update(traced.get_trace(**kwargs)))  # nothing is computed
    if "y" not in found or not {"network", "coordinate"} <= {plate.name for plate in found["y"].get("cond_indep_stack", ())}:
        raise unusable("model", "a site `y` under the plates `network` and `coordinate`", ", ".join(found))
    of_networks = lambda site: any(plate.name == "network" for plate in site.get("cond_indep_stack", ()))  # noqa: E731
    drawn = {name: site for name, site in found.items() if site["type"] == "sample" and not site["is_observed"]}
    computed = {name: site for name, site in found.items() if site["type"] == "deterministic"}
    parameters = [name for name, site in {**drawn, **computed}.items() if not of_networks(site)]
    return parameters, [name for name, site in drawn.items() if of_networks(site)]
