"""What every method of inference is given, and what it returns."""

import inspect
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import handlers  # noqa: F401 - loaded whole first: ArviZ leaves a lazy module behind, whose parts come twice

from hierattn import __version__
from hierattn.base.errors import unusable
from hierattn.base.provenance import digest
from hierattn.inference import likelihood
from hierattn.inference.latent.unknown import Unknown
from hierattn.law.distributions import output_basis
from hierattn.law.law import Law
from hierattn.law.plates import choose
from hierattn.layer import masks, record
from hierattn.layer.architecture import Architecture
from hierattn.observed.observations import Observations

SEPARATE = "separate_kernels"
KERNEL_UNKNOWN = ("kernel_unknown", SEPARATE)  # models of which it is a parameter
LAYER_NAMES = ("heads", *record.COUNTS, *record.WORDS, *record.ARRAYS, record.MASK)  # all fields but the scales


class Posterior(NamedTuple):
    """What a method found: draws (chain, draw, ...) of parameters, statistics of the sampler (chain, draw), and reasons.

    - Sigma: (chain, record, network, token, token), conditional covariances of the observed networks, where they were drawn
    - reasons: things to know: {code, message, numbers}
    """

    draws: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]
    method: str
    Sigma: np.ndarray | None = None
    reasons: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Problem:
    """Observed outputs, the layer they are thought to come from, a model of `models/`, and the priors of its parameters."""

    observations: Observations
    layer: Architecture
    model: ModuleType
    prior: dict[str, Any]

    @property
    def name(self) -> str:
        """The model's name; that of its file for a user's own, which may be called like one of ours."""
        module, _, name = self.model.__name__.rpartition(".")
        return name if module == "hierattn.models" else Path(str(self.model.__file__)).name

    @property
    def takes_second_moments(self) -> bool:
        """Do second moments suffice for the model? For all of ours but Student's t; of a user's own nothing is known."""
        return self.model.__name__.startswith("hierattn.models.") and self.name != "student_t"

    @property
    def K_each(self) -> bool:
        """Has every network a kernel of its own?"""
        return self.observations.kernel is not None and self.observations.kernel.ndim == 3

    @property
    def K(self) -> np.ndarray:
        """The kernel, which must be known."""
        if self.observations.kernel is None:
            raise unusable("kernel", "a kernel, inputs or 'identity'", "none", "or use the model kernel_unknown")
        return self.observations.kernel

    @property
    def kernel_size(self) -> float:
        """Mean of K's diagonal; 1 where K is inferred, as a correlation matrix."""
        return kernel_size(self.observations.kernel)

    @property
    def score_size(self) -> float:
        """What scores are proportional to: the same, or 1 of normed queries and keys."""
        return self.kernel_size if self.layer.qk_norm is None else 1.0

    @cached_property
    def observed_layer(self) -> Architecture:
        """The layer with the rows of mask and bias that belong to observed tokens."""
        return self.layer.rows(self.observations.tokens, self.K.shape[-1])

    @cached_property
    def law(self) -> Law:
        """The law of the observed tokens, scales 1 where the model will have parameters; one kernel for all networks."""
        tokens, layer = self.observations.tokens, self.observed_layer.with_scales(1.0, 1.0)
        if self.name == "linear_scaling":  # at a finite width, a scale of its own
            layer = layer.replace(scaling="sqrt")
        if self.name == "infinite_heads" and np.ndim(layer.bias) < 3:  # many span what all do
            layer = layer.replace(heads=len(tokens), head_dim=None, key_value_heads=None)
        return Law(layer, self.K, self.K[tokens[:, None], tokens])

    @cached_property
    def basis(self) -> np.ndarray | None:
        """Basis of the subspace on which outputs have a density; None if that is everything."""
        return output_basis(self.law) if self.name not in KERNEL_UNKNOWN and self.K.ndim == 2 else None

    def settings(self) -> dict[str, Any]:
        """What a resumed run must have in common with the one that was killed."""
        obs, own = self.observations, not self.takes_second_moments and self.name != "student_t"
        told = {"model": self.name, "outputs": obs.sha256, "networks": obs.networks, "kernel": _told(obs.kernel)}
        told |= {"model_file": _told(np.fromfile(str(self.model.__file__), np.uint8)) if own else None}
        told |= {"tokens": obs.tokens.tolist(), "hierattn": __version__}
        of_eps = record.OF_EPS.values() if self.layer.qk_eps else ()
        told |= {name: _told(getattr(self.layer, name)) for name in (*LAYER_NAMES, *of_eps)}
        return told | {f"prior of {name}": _told(prior) for name, prior in self.prior.items()}

    def data(self) -> likelihood.Data:
        """The sufficient statistics, in units of the outputs' scale."""
        obs = self.observations
        if self.name in KERNEL_UNKNOWN:
            data = likelihood.prepare(obs.S / obs.scale**2, obs.coordinates, self.layer, np.eye(obs.s))
            return replace(data, unknown=Unknown(float(self.prior["concentration"]), obs.s, self.name == SEPARATE))
        return likelihood.prepare(obs.S / obs.scale**2, obs.coordinates, self.layer, self.K, obs.tokens, self.basis)


def _told(value: Any) -> Any:
    """A setting in words and numbers: arrays as hashes, distributions as their names and parameters."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if np.ndim(value) or isinstance(value, (np.ndarray, np.generic)):
        return digest(np.asarray(value))
    named = {name: str(getattr(value, name)) for name in sorted(getattr(value, "arg_constraints", {}))}
    others = sorted({*map(str, jax.tree.leaves(value))} - {*named.values()})  # leaves come in an order that is not fixed
    return f"{type(value).__name__}({', '.join([*(f'{name}={x}' for name, x in named.items()), *others])})"


def pose(observations: Observations, layer: Architecture, model: ModuleType, prior: dict | None) -> Problem:
    """A problem, checked: observations and layer that agree, priors on the scale of outputs and kernel."""
    _check_agreement(observations, layer)
    if layer.mask is None and observations.mask is not None:
        layer = layer.replace(mask=observations.mask)
    own = own_priors(model, observations.scale, observations.kernel, layer.qk_norm is not None)
    return Problem(observations, layer, model, choose(own, prior))


def own_priors(model: ModuleType, scale: float, kernel: Any, normed: bool = False) -> dict[str, Any]:
    """A model's own priors for outputs of this root mean square and this kernel, as far as it asks for them."""
    if not hasattr(model, "priors"):
        return {}
    known, asked = {"kernel": kernel_size(kernel), "normed": normed}, inspect.signature(model.priors).parameters
    return model.priors(scale, **{name: value for name, value in known.items() if name in asked})


def kernel_size(kernel: Any) -> float:
    """Mean of the diagonal of K, or of all of them; 1 for none, and for K = 0, of which nothing follows."""
    return 1.0 if kernel is None else float(np.mean(np.diagonal(kernel, axis1=-2, axis2=-1))) or 1.0


def _check_agreement(observations: Observations, layer: Architecture) -> None:
    """What observations and layer both say must be the same."""
    remedy = "leave one of them out"
    if observations.heads not in (None, layer.heads):
        raise unusable("heads", f"{observations.heads}, as the observations say", layer.heads)
    if observations.mask is not None and layer.mask is not None:
        t = observations.s if observations.kernel is None else observations.kernel.shape[-1]
        if not np.array_equal(*(masks.allowed(mask, t, t) for mask in (observations.mask, layer.mask))):
            raise unusable("mask", "that of the observations", "a layer with another one", remedy)
    described = observations.layer
    if described is None:
        return
    for name in ("head_dim", *record.WORDS):
        theirs, given = getattr(described, name), getattr(layer, name)
        if None not in (theirs, given) and theirs != given:
            raise unusable(name, f"{theirs}, as the observations say", given, remedy)
    for name in sorted(record.NEW - set(record.OF_EPS)):
        theirs, given = getattr(described, name), getattr(layer, name)
        if not np.array_equal(theirs, given):
            raise unusable(name, f"{theirs}, as the observations say", given, remedy)
