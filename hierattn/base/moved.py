"""Modules that have moved: their old names still work for one version, with a warning that says the new one."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PUBLIC = {  # modules that are public names themselves: hierattn.kernels and the like stay
    "activations": "layer.activations",
    "distributions": "law.distributions",
    "kernels": "layer.kernels",
    "network": "finite.network",
}
MOVED: dict[str, str | tuple[str, ...]] = {  # old -> new, both beneath hierattn; several where its names went apart
    "architecture": ("layer.architecture", "layer.masks", "layer.positions"),
    "calibration": "inference.calibration",
    "cli": "command_line.app",
    "collapsed": "finite.collapsed",
    "comparison": "diagnostics.comparison",
    "described": "layer.record",
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


class Gathered(ModuleType):
    """A module whose names are now in several."""

    homes: tuple[ModuleType, ...]

    def __getattr__(self, name: str) -> Any:
        for home in self.__dict__.get("homes", ()):
            if hasattr(home, name):
                return getattr(home, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class Forwarding:
    """Finds an old name and loads the module, or gathers the modules, that have taken its place."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A spec for names that have moved, and for nothing else."""
        package, _, name = fullname.partition(".")
        return ModuleSpec(fullname, self) if package == "hierattn" and name in MOVED | PUBLIC else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module under its new name, or one that gathers several."""
        name = spec.name.removeprefix("hierattn.")
        new = (MOVED | PUBLIC)[name]
        names = [f"hierattn.{module}" for module in ((new,) if isinstance(new, str) else new)]
        if name in MOVED:
            message = f"{spec.name} is now {', '.join(names)}; the old name goes with version 0.3"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
        homes = tuple(import_module(module) for module in names)
        if len(homes) > 1:
            module = Gathered(spec.name)
            module.homes = homes
            return module
        self._own = homes[0].__spec__
        return homes[0]

    def exec_module(self, module: ModuleType) -> None:
        """It is loaded already; its own spec comes back."""
        if not isinstance(module, Gathered):
            module.__spec__ = self._own


def forward() -> None:
    """Let old names be found."""
    if not any(isinstance(finder, Forwarding) for finder in sys.meta_path):
        sys.meta_path.append(Forwarding())  # type: ignore[arg-type]
