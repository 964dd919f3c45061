"""What is diagnosed: outputs, the law they are held against, and where its scales are from."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hierattn.base.errors import unusable
from hierattn.inference.fitting import check_density, layer_of, lookup, route
from hierattn.inference.problem import Problem, pose
from hierattn.law.law import Law
from hierattn.layer.architecture import Architecture
from hierattn.layer.record import SCALES
from hierattn.observed import fits
from hierattn.observed.observations import Observations

if TYPE_CHECKING:
    from xarray import DataTree

OF_THE_LAW = ("limit_law", "finite_head_dim")  # models that are the law with a known kernel


class Subject(NamedTuple):
    """Outputs against a law.

    - law: None if there is none to be had: no kernel, or a model without the hierarchy
    - free: scales that were estimated, and draws (posterior or bootstrap) of them
    - origin: where the scales are from: "given", "moments" or "fit"
    - tree: the fit, if there is one
    """

    observations: Observations
    layer: Architecture | None
    law: Law | None
    free: frozenset[str]
    draws: dict[str, np.ndarray]
    origin: str
    reasons: tuple[dict[str, Any], ...] = ()
    tree: "DataTree | None" = None

    @property
    def at_an_end(self) -> bool:
        """Are estimates at an end of the prior's range?"""
        return any(reason["code"] == "at_an_end" for reason in self.reasons)

    @property
    def given(self) -> dict[str, Any]:
        """Scales that were fixed in advance: a number, or one for each head where heads differ."""
        found = {} if self.law is None else scales_of(self.law.layer)
        return {name: value for name, value in found.items() if name not in self.free}

    @property
    def heads_differ(self) -> bool:
        """Have heads scales of their own?"""
        return any(np.ndim(value) for value in self.given.values())


def scales_of(layer: Architecture) -> dict[str, Any]:
    """score_scale and value_scale: a number for all heads, or one for each where heads differ."""
    found = {name: np.asarray(getattr(layer, name), float) for name in SCALES}
    return {name: x if np.ptp(x) else float(x[0]) for name, x in found.items()}


def with_described(observations: Observations, given: dict[str, Any]) -> dict[str, Any]:
    """Given scales, and those of the observations' own layer in place of what is not given; heads that differ keep theirs."""
    if observations.layer is None:
        return given
    own = scales_of(observations.layer)
    for name, value in given.items():
        if value is not None and np.ndim(own[name]):
            told = f"none for a layer whose heads have scales of their own ({', '.join(f'{x:.3g}' for x in own[name])})"
            raise unusable(name, told, value, "leave it out, or describe the layer anew")
    return {name: own[name] if value is None else value for name, value in given.items()}


def check_equal_heads(layer: Architecture | None, given: dict[str, Any]) -> None:
    """Refuse a layer given beside the outputs whose heads have scales of their own, which an estimate would pass over."""
    if layer is not None and any(np.ndim(value) for value in scales_of(layer).values()) and None in given.values():
        remedy = "let the observations have it: Observations(outputs, ..., layer=layer)"
        raise unusable("layer", "equal heads where scales are estimated", "heads with scales of their own", remedy)


def of_observations(observations: Observations, layer: Architecture | None, given: dict[str, Any], seed: int) -> Subject:
    """Scales that are not given are estimated from moments; given are numbers, or one for each head."""
    if observations.kernel is None:
        if any(value is not None for value in given.values()):
            raise unusable("kernel", "a kernel or inputs for a law with given scales", "none", "give it: --kernel identity")
        return Subject(observations, layer, None, frozenset(), {}, "given")
    check_equal_heads(layer, given)
    layer = layer or layer_of(observations)
    problem = pose(observations, layer, lookup("limit_law" if layer.head_dim is None else "finite_head_dim"), None)
    check_density(problem)
    fixed = {name: value for name, value in given.items() if value is not None}
    free = frozenset(SCALES) - set(fixed)
    draws, reasons = estimated(problem, seed) if free else ({}, ())
    scales = {name: float(np.median(x)) for name, x in draws.items()} | fixed
    return Subject(observations, layer, law_at(problem, scales), free, draws, "moments" if free else "given", reasons)


def of_fit(tree: "DataTree", layer: Architecture | None, given: dict[str, Any], seed: int) -> Subject:
    """A fit: its posterior gives the scales, but for those fixed in advance."""
    check_equal_heads(layer, given)
    observations, layer = fits.observations_of(tree), layer or fits.layer_of(tree)
    fixed = {name: float(value) for name, value in given.items() if value is not None}
    if tree.attrs["model"] not in OF_THE_LAW or observations.kernel is None:
        if fixed:
            raise unusable("score_scale", "none for a fit without the law's own kernel", fixed, "diagnose the outputs instead")
        return Subject(observations, layer, None, frozenset(), {}, "fit", (), tree)
    problem = pose(observations, layer, lookup(tree.attrs["model"]), None)
    draws = {name: np.asarray(tree["posterior"][name]) for name in SCALES}
    scales = {name: float(np.median(x)) for name, x in draws.items()} | fixed
    free = frozenset(SCALES) - set(fixed)
    return Subject(observations, layer, law_at(problem, scales), free, draws, "fit" if free else "given", (), tree)


def estimated(problem: Problem, seed: int) -> tuple[dict[str, np.ndarray], tuple[dict[str, Any], ...]]:
    """Draws of both scales from moments, and what is to be known of them."""
    if problem.K.ndim == 3:
        remedy = "run hierattn fit and diagnose the fit, or give --score-scale and --value-scale"
        raise unusable("kernel", "one kernel for all networks where scales are estimated", "one a network", remedy)
    found = route(problem, "moments", seed, chains=4)
    return found.draws, tuple(reason for reason in found.reasons if reason["code"] != "bootstrap")


def law_at(problem: Problem, scales: dict[str, Any]) -> Law:
    """The law of the observed tokens with these scales; kernels of all networks, if each has its own."""
    layer = problem.observed_layer.with_scales(*(scales[name] for name in SCALES))
    if problem.K.ndim == 2:
        return Law.from_factors(layer, problem.law.L_k, problem.law.L_q)
    from hierattn.law.plates import law_of

    tokens = problem.observations.tokens
    return law_of(layer, problem.K, problem.K[:, tokens[:, None], tokens])
