"""Modules that have moved: their old names still work for one version, with a warning that says the new one."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PUBLIC = {  # modules that are public names themselves: hierattn.kernels and the like stay
    "activations": "layer.activations",
    "distributions": "law.distributions",
    "kernels": "layer.kernels",
    "network": "finite.network",
}
MOVED = {  # old -> new, both beneath hierattn
    "architecture": "layer.architecture",
    "calibration": "inference.calibration",
    "cli": "command_line.app",
    "collapsed": "finite.collapsed",
    "comparison": "diagnostics.comparison",
    "errors": "base.errors",
    "inference.from_moments": "inference.methods.moments",
    "inference.grid": "inference.methods.one_token.grid",
    "inference.importance": "inference.methods.importance",
    "inference.networkwise": "inference.methods.networkwise",
    "inference.nuts": "inference.methods.nuts",
    "inputs": "finite.inputs",
    "inspection": "observed.inspection",
    "joint_moments": "law.joint_moments",
    "marginal": "law.marginal",
    "model_comparison": "inference.model_comparison",
    "modelling": "law.plates",
    "moments": "law.moments",
    "observations": "observed.observations",
    "sampling": "law.sampling",
    "stored_fits": "observed.fits",
    "theorem": "finite.theorem",
    "token_law": "law.token_law",
}


class Forwarding(MetaPathFinder, Loader):
    """Finds an old name and loads the module that has taken its place."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A spec for names that have moved, and for nothing else."""
        package, _, name = fullname.partition(".")
        return ModuleSpec(fullname, self) if package == "hierattn" and name in MOVED | PUBLIC else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module under its new name."""
        name = spec.name.removeprefix("hierattn.")
        new = f"hierattn.{(MOVED | PUBLIC)[name]}"
        if name in MOVED:
            warnings.warn(f"{spec.name} is now {new}; the old name goes with version 0.3", DeprecationWarning, stacklevel=6)
        module = import_module(new)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It is loaded already; its own spec comes back."""
        module.__spec__ = self._own


def forward() -> None:
    """Let old names be found."""
    if not any(isinstance(finder, Forwarding) for finder in sys.meta_path):
        sys.meta_path.append(Forwarding())
