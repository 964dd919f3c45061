"""What a framework provides for its attention layers to be captured: the functions that `capture` calls, and no others.

A framework is a file of this folder that has these functions, and a line in `FRAMEWORKS`: where the base class of its models
is, and the file. It is imported when such a model is given, so that nobody needs a framework that he does not use.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from hierattn.frameworks.latent_runs import LatentRun
from hierattn.frameworks.runs import Run

FRAMEWORKS = {"torch.nn.modules.module": "torch_layers", "flax.nnx.module": "flax_layers"}  # where their base classes are


class Framework(Protocol):
    """Models of one library: their parts, runs of them, and networks drawn anew."""

    def modules(self, model: Any) -> dict[str, str]:
        """Name -> class of all parts of a model, in order; the model itself is called ""."""

    def layers(self, model: Any, inputs: Any) -> list[str]:
        """Names of the attention layers that `read` may understand, in order; some are known only when the model runs."""

    def read(self, model: Any, name: str, inputs: Any) -> Run | LatentRun:
        """Run the model on inputs, and say all that the law needs of the layer of this name."""

    def look(self, model: Any, name: str, inputs: Any) -> tuple[Float[np.ndarray, "batch s n"], Float[np.ndarray, "batch s m"]]:
        """Run the model on inputs: what went into a part, and what came out of it, for a layer described by hand."""

    def fresh(self, model: Any, seed: int) -> Any:
        """The same model with weights drawn anew by its own initialisers; refused where those are not known."""

    def built(self, build: Callable[[], Any], seed: int) -> Any:
        """What a user's function returns, called with the framework's own generator at this seed."""

    def hold(self, model: Any, first: Any) -> bool:
        """Give a network those parameters of the first that are part of the description; are there any?"""

    def check_mode(self, model: Any) -> None:
        """Refuse a model whose outputs are not those of its weights alone: dropout that is on."""
