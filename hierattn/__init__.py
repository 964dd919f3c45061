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

from hierattn.base.moved import PUBLIC, forward

if TYPE_CHECKING:
    from hierattn.base.errors import InputError, UnsafeInputError
    from hierattn.diagnostics.comparison import against_gaussian, compare, compare_outputs
    from hierattn.finite import network
    from hierattn.finite.collapsed import FiniteWidth, given_inputs
    from hierattn.finite.inputs import RandomInputs
    from hierattn.frameworks.capture import capture
    from hierattn.inference.fitting import fit
    from hierattn.inference.model_comparison import compare_models
    from hierattn.law import distributions
    from hierattn.law.joint_moments import JointMoments
    from hierattn.law.latent.law import LatentLaw
    from hierattn.law.law import Law
    from hierattn.law.marginal import Marginal
    from hierattn.law.moments import Moments
    from hierattn.layer import activations, kernels
    from hierattn.layer.architecture import Architecture
    from hierattn.layer.latent import LatentAttention
    from hierattn.layer.masks import sequence_mask
    from hierattn.layer.positions import rotary_frequencies
    from hierattn.observed.observations import Observations, read
    from hierattn.reporting.notebook import diagnose
    from hierattn.reporting.page import report
    from hierattn.stack.blocks import MLP, Block, Norm
    from hierattn.stack.embedding import Embedding, Unembedding
    from hierattn.stack.families import stack_from_config
    from hierattn.stack.stack import Stack
    from hierattn.sweeps.store import read_sweep
    from hierattn.sweeps.sweep import sweep

__version__ = "0.2.0"
__all__ = [
    "MLP",
    "Architecture",
    "Block",
    "Embedding",
    "FiniteWidth",
    "InputError",
    "JointMoments",
    "LatentAttention",
    "LatentLaw",
    "Law",
    "Marginal",
    "Moments",
    "Norm",
    "Observations",
    "RandomInputs",
    "Stack",
    "Unembedding",
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
    "models",
    "network",
    "read",
    "read_sweep",
    "report",
    "rotary_frequencies",
    "sequence_mask",
    "stack_from_config",
    "sweep",
]

_HOMES = {
    "Architecture": "layer.architecture",
    "rotary_frequencies": "layer.positions",
    "sequence_mask": "layer.masks",
    "InputError": "base.errors",
    "UnsafeInputError": "base.errors",
    "FiniteWidth": "finite.collapsed",
    "given_inputs": "finite.collapsed",
    "against_gaussian": "diagnostics.comparison",
    "capture": "frameworks.capture",
    "compare": "diagnostics.comparison",
    "compare_models": "inference.model_comparison",
    "compare_outputs": "diagnostics.comparison",
    "diagnose": "reporting.notebook",
    "fit": "inference.fitting",
    "RandomInputs": "finite.inputs",
    "LatentAttention": "layer.latent",
    "LatentLaw": "law.latent.law",
    "Law": "law.law",
    "Marginal": "law.marginal",
    "JointMoments": "law.joint_moments",
    "Moments": "law.moments",
    "Observations": "observed.observations",
    "read": "observed.observations",
    "report": "reporting.page",
    "Block": "stack.blocks",
    "MLP": "stack.blocks",
    "Norm": "stack.blocks",
    "Embedding": "stack.embedding",
    "Unembedding": "stack.embedding",
    "Stack": "stack.stack",
    "stack_from_config": "stack.families",
    "sweep": "sweeps.sweep",
    "read_sweep": "sweeps.store",
}

forward()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hierattn.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"hierattn.{PUBLIC.get(name, name)}")
    raise AttributeError(f"module 'hierattn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
