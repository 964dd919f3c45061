"""What a fit will cost, known from its first chunks, and the end of its budget.

The trial is the beginning of the fit itself: nothing of it is lost. What JAX spent compiling is not counted as work. While
chains adapt, later chunks tell the time of a draw better.
"""

from collections.abc import Callable
from math import inf, sqrt
from typing import Any

from hierattn.base.reasons import reason
from hierattn.inference.course.budget import Budget, in_words
from hierattn.inference.course.watching import OF_CHAINS, Counting, Watch
from hierattn.inference.problem import Problem

LONG = 0.1  # share of the budget that makes a first chunk trial enough, compilation not counted
DOUBTS, SURE = 2.0, 0.25  # before this share of the budget is used, expectations count only if they are so many times over it
GO_ON = "what is done is kept beside the file: go on with --budget none --resume --force (budget=None, resume=True, force=True)"
BEGIN = "give a longer one (budget=None for no limit), and out= to keep what is done"


class Pace(Counting):
    """Counts chunks and their time, says what is expected, and ends chains when the budget does.

    - method: its warm_up_steps, usual_steps, most_steps and likelihood_steps say what work is to be expected
    - kept: is what is done kept on disk?
    - chunks: those that a resumed run has already; it is not judged again
    - late: called, while chains adapt, when the fit will probably take longer than the budget
    """

    def __init__(
        self,
        told: Watch,
        method: Any,
        budget: Budget,
        *,
        began: float | None = None,
        kept: bool = False,
        chunks: int = 0,
        late: Any = None,
    ) -> None:
        told.begins(method.name, method.most_steps)
        super().__init__(told, method.warm_up_steps)
        self.method, self.budget, self.kept, self.chunks = method, budget, kept, chunks
        self.usual = method.usual_steps
        self.began = self.before = budget.clock()
        self.began = self.began if began is None else began
        self.late: Callable[[Pace], None] | None = None if chunks else late
        self.compiled, self.compiling = budget.compiled(), 0.0
        self.a_step, self.seen = 0.0, 0
        self.stopped = self.told_all = False

    def starts(self, problem: Problem) -> None:
        """Say at once what is known without a trial, and ask how many draws usually suffice for it."""
        self.usual, self.warm_up = self.method.usual_for(problem), self.method.warm_up_for(problem)
        if not self.method.sampled:
            self.say(f"{self.method.name}, {sizes(problem)}: no chains, usually less than a minute; budget {self.budget.words}")
        self.sizes = sizes(problem)

    def step(self, done: int) -> None:
        """One more chunk; the first two say what is to be expected, and those of the warm-up whether that is too much."""
        now, compiled = self.budget.clock(), self.budget.compiled()
        took, compiling = now - self.before, compiled - self.compiled
        self.before, self.compiled, self.compiling = now, compiled, max(self.compiling, compiling)
        already = done * self.chunks if self.seen == 0 else 0
        work, self.seen = max(took - compiling, 0.0), self.seen + 1
        self.a_step = work / done
        super().step(done + already)
        first = self.seen == 1 and work > LONG * self.budget.seconds
        if first or (self.seen == 2 and not self.told_all):
            self.told_all = True
            self.say(self.expectation())
        if self.late is not None and self.done <= self.warm_up and self.told_all and self.too_long():
            late, self.late = self.late, None
            late(self)

    @property
    def elapsed(self) -> float:
        """Seconds since the fit began."""
        return self.budget.clock() - self.began

    def until(self, steps: float) -> float:
        """Seconds of the whole fit when so many draws are done, likelihoods not counted."""
        return self.elapsed + max(steps - self.done, 0) * self.a_step

    @property
    def likelihoods(self) -> float:
        """Seconds that they will take: another program is compiled, and particles are moved."""
        return self.compiling + self.method.likelihood_steps * self.a_step

    def expectation(self) -> str:
        """Method, time, and how sure that is."""
        usual, most = (self.until(n) + self.likelihoods for n in (self.usual, self.method.most_steps))
        draws, at_most = self.usual - self.warm_up, self.method.most_steps - self.warm_up
        sure = f"if {draws:,} draws of each chain suffice as usual (at most {at_most:,} draws, {in_words(most)})"
        trial = f"about {in_words(usual)} by a trial of {in_words(self.elapsed)}"
        return f"{self.method.name}, {self.sizes}: {trial}, {sure}; budget {self.budget.words}"

    def too_long(self) -> bool:
        """Will the usual number of draws take longer than there is time? At the beginning that is not known well."""
        doubts = DOUBTS if self.elapsed < SURE * self.budget.seconds else 1.0
        return self.until(self.usual) > doubts * OF_CHAINS * self.budget.seconds

    def affordable(self, networks: int) -> int:
        """How many networks the same fit could have in the time that is left: work grows with them, compilation does not."""
        left = OF_CHAINS * self.budget.seconds - self.elapsed - self.compiling
        work = self.usual * self.a_step
        return rounded(networks * left / work) if left > 0 and work > 0 else 0

    def over(self, share: float = 1.0) -> bool:
        """Is this share of the budget used?"""
        return self.elapsed > share * self.budget.seconds

    def ended(self) -> dict[str, Any] | None:
        """That it ended the fit, if so, and how to go on."""
        if not self.over(OF_CHAINS):
            return None
        self.stopped, draws = True, self.done - self.warm_up
        message = (
            f"the budget of {self.budget.words} ended for chains after {draws:,} draws of each chain, before they agreed; "
        )
        message += GO_ON if self.kept else BEGIN
        return reason("budget", message, draws=draws, seconds=self.elapsed, budget=self.budget.seconds)

    def no_time(self) -> str | None:
        """Why likelihoods are not computed, if the budget does not allow it."""
        if self.elapsed + self.likelihoods <= self.budget.seconds:
            return None
        needed = f"{in_words(self.likelihoods)} more" if self.a_step else "more time"
        return (
            f"they would have taken about {needed}, more than is left of the budget of {self.budget.words}; use --budget none"
        )


def sizes(problem: Problem) -> str:
    """Of what the cost of a chain's draw grows with."""
    obs = problem.observations
    keys = obs.s if obs.kernel is None else obs.kernel.shape[-1]
    return f"{obs.networks:,} networks x {obs.s} x {keys} tokens x {problem.layer.heads} heads"


def rounded(number: float) -> int:
    """Down to two digits, so that small differences of time change nothing."""
    if number < 10:
        return int(number)
    unit = 10 ** (len(str(int(number))) - 2)
    return max(step for step in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80) if step * unit <= number) * unit


def wider(networks: int, of: int) -> float:
    """How many times as wide intervals are with some of the networks."""
    return inf if networks == 0 else sqrt(of / networks)
