"""hierattn: the infinite-width law of attention as an explicit hierarchical generative model.

The law's flow:        inputs -> K -> law (kappa, kappa') -> generative model -> sample, moments, marginal
The network's flow:    inputs -> X -> a finite network, weight by weight -> outputs;    both -> compare

    import hierattn as ha
    layer = ha.Architecture(heads=2)
    law = ha.Law(layer, ha.kernels.activation("relu", tokens=4))
    y = law.sample(rng_key, networks=1000, coordinates=16)      # (network, token, coordinate)
    m = law.marginal(token=0)                                   # pdf, cdf, ppf, sf, ...
    ha.compare(layer, width=256)                                # finite networks against the law
    obs = ha.read("outputs.npz")                                # or ha.Observations(outputs, kernel=K), ha.capture(model, X)

Names are loaded when they are first used, so that importing the package is quick and has no side effects.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierattn import activations, distributions, kernels, network
    from hierattn.architecture import Architecture, rotary_frequencies, sequence_mask
    from hierattn.collapsed import FiniteWidth, given_inputs
    from hierattn.comparison import against_gaussian, compare, compare_outputs
    from hierattn.diagnostics.diagnosis import diagnose
    from hierattn.errors import InputError, UnsafeInputError
    from hierattn.frameworks.capture import capture
    from hierattn.inference.fitting import fit
    from hierattn.inputs import RandomInputs
    from hierattn.joint_moments import JointMoments
    from hierattn.law import Law
    from hierattn.marginal import Marginal
    from hierattn.model_comparison import compare_models
    from hierattn.moments import Moments
    from hierattn.observations import Observations, read
    from hierattn.reporting.page import report

__version__ = "0.1.0"
__all__ = [
    "Architecture",
    "FiniteWidth",
    "InputError",
    "JointMoments",
    "Law",
    "Marginal",
    "Moments",
    "Observations",
    "RandomInputs",
    "UnsafeInputError",
    "activations",
    "against_gaussian",
    "capture",
    "compare",
    "compare_models",
    "compare_outputs",
    "diagnose",
    "distributions",
    "fit",
    "given_inputs",
    "kernels",
    "network",
    "read",
    "report",
    "rotary_frequencies",
    "sequence_mask",
]

_HOMES = {
    "Architecture": "architecture",
    "rotary_frequencies": "architecture",
    "sequence_mask": "architecture",
    "InputError": "errors",
    "UnsafeInputError": "errors",
    "FiniteWidth": "collapsed",
    "given_inputs": "collapsed",
    "against_gaussian": "comparison",
    "capture": "frameworks.capture",
    "compare": "comparison",
    "compare_models": "model_comparison",
    "compare_outputs": "comparison",
    "diagnose": "diagnostics.diagnosis",
    "fit": "inference.fitting",
    "RandomInputs": "inputs",
    "Law": "law",
    "Marginal": "marginal",
    "JointMoments": "joint_moments",
    "Moments": "moments",
    "Observations": "observations",
    "read": "observations",
    "report": "reporting.page",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hierattn.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"hierattn.{name}")
    raise AttributeError(f"module 'hierattn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
