"""What a fitting method is: whether it can fit a problem, whether it should, how it samples, and what it knows of likelihoods.

A method is a small frozen object whose fields are its settings: `Networkwise(most_draws=50_000)`. To add one: a file here with
a subclass of `Method`, and a line in `registry`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from hierattn.inference.checkpoints import Checkpoint
from hierattn.inference.course.watching import NOBODY, OF_CHAINS, Watch
from hierattn.inference.integration.integrated import Integrated
from hierattn.inference.problem import Posterior, Problem


@dataclass(frozen=True)
class Run:
    """How a method is run, whichever it is.

    - seed, chains: of its random numbers; how many chains, or groups of independent draws
    - width: of the networks, for models that need it
    - checkpoint: where chunks of a long run are kept
    - advance: called with the number of draws of each chain just done
    - watch: told how far chains are, and asked whether the time is over
    """

    seed: int = 0
    chains: int = 4
    width: int | None = None
    checkpoint: Checkpoint | None = None
    advance: Callable[[int], Any] = lambda done: None
    watch: Watch = NOBODY

    def watched(self, checkpoint: Checkpoint | None, watch: Watch) -> "Run":
        """The same run, kept there and watched by that."""
        return replace(self, checkpoint=checkpoint, advance=watch.step, watch=watch)

    def ends(self, all_drawn: bool, reasons: list[dict[str, Any]]) -> bool:
        """Should chains end here? If all draws are there, if nothing is left to say against them, or if the time is over."""
        few = [x for each in reasons if each["code"] == "ess" for x in each["numbers"].values() if x is not None]
        self.watch.effective(min(few, default=None))
        return all_drawn or not reasons or self.watch.over(OF_CHAINS)


@dataclass(frozen=True)
class Method(ABC):
    """A way to a posterior.

    - name: what users call it
    - sampled: are draws those of chains, whose convergence must be judged?
    """

    name: ClassVar[str]
    sampled: ClassVar[bool] = False

    @abstractmethod
    def refuses(self, problem: Problem) -> str | None:
        """Why it cannot fit this problem, in words; None if it can."""

    def prefers(self, problem: Problem) -> str | None:
        """Why `auto` should take it, where it refuses nothing; None if others should be asked."""
        return None

    @property
    def most_steps(self) -> int:
        """Draws of each chain that a run takes at most, warm-up included: what `advance` will count to."""
        return 1

    @property
    def warm_up_steps(self) -> int:
        """Of them, the first that adapt the sampler and are not kept."""
        return 0

    def warm_up_for(self, problem: Problem) -> int:
        """The same for this problem, where that is known better."""
        return self.warm_up_steps

    @property
    def usual_steps(self) -> int:
        """Draws of each chain that usually suffice, warm-up included."""
        return self.most_steps

    def usual_for(self, problem: Problem) -> int:
        """The same for this problem, where that is known better."""
        return self.usual_steps

    @property
    def likelihood_steps(self) -> int:
        """How many draws cost as much as the likelihoods with latent variables integrated out."""
        return 0

    @abstractmethod
    def sample(self, problem: Problem, run: Run) -> Posterior:
        """The posterior, in float64."""

    def log_likelihood(self, problem: Problem, found: Posterior, run: Run) -> Integrated | str:
        """Log likelihood of every network at every draw, its scores integrated out; or why there is none."""
        return f"the method {self.name} has no likelihood"

    def advice(self, problem: Problem, code: str) -> str:
        """What to do about a reason (its code) for which chains cannot be trusted."""
        return "use another method"

    def settings(self) -> dict[str, Any]:
        """What a resumed run must have in common with the one that was killed."""
        return {"method": self.name} | {f"{self.name}: {name}": value for name, value in asdict(self).items()}


def of_law(problem: Problem, *models: str, rotary: bool = False, linear: bool = False, normed: bool = False) -> str | None:
    """Why a problem is not that of a law with a known kernel; what is known beyond the plain law."""
    if problem.name not in models:
        return f"fits {' and '.join(models)}, not the model {problem.name}"
    if problem.observations.kernel is None:
        return "needs a kernel"
    if problem.layer.sink_scale is not None:
        return "knows no sink_scale: sinks that vary between networks"
    if problem.layer.qk_norm is not None and problem.layer.head_dim is not None and not normed:
        return "knows no qk_norm at finite head_dim"
    if problem.layer.rotary is not None and not rotary:
        return "knows no rotary embeddings"
    if problem.layer.scaling != "sqrt" and not (linear and problem.layer.head_dim is not None):
        return f"knows no scaling {problem.layer.scaling!r}"
    if problem.name == "limit_law" and problem.layer.head_dim is not None:
        return "takes head_dim as infinite for the model limit_law"
    return None
