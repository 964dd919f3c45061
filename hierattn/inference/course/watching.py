"""Who looks on while a fit runs. Light: the command line loads it before anything runs."""

from collections.abc import Callable
from typing import Any

WARM_UP, SAMPLING, LIKELIHOODS, HEADS = "warm-up", "sampling", "likelihoods", "other numbers of heads"  # phases

OF_CHAINS = 0.85  # share of the time after which chains end, so that predictions and other numbers of heads have some


class Watch:
    """Who looks on while a fit runs, and may end it; this one does neither."""

    def begins(self, method: str, most: int) -> None:
        """A fit begins, by a method that takes so many draws of each chain at most, warm-up included."""

    def phase(self, name: str) -> None:
        """What is done now: warm-up, sampling, likelihoods, other numbers of heads."""

    def step(self, done: int) -> None:
        """So many more draws of each chain are there, warm-up included."""

    def effective(self, draws: float | None) -> None:
        """Effective draws so far, of the parameter that has fewest; None if they suffice."""

    def say(self, message: str) -> None:
        """A line that a user should read now."""

    def over(self, share: float = 1.0) -> bool:
        """Is this share of the time over?"""
        return False

    def ended(self) -> dict[str, Any] | None:
        """The reason for a verdict, if the time ended chains that did not agree."""
        return None

    def no_time(self) -> str | None:
        """Why there is no time for likelihoods, in words; None if there is."""
        return None


NOBODY = Watch()


class Calling(Watch):
    """A function that is called with the number of draws of each chain just done."""

    def __init__(self, advance: Callable[[int], Any]) -> None:
        self.step = advance  # type: ignore[method-assign, assignment]


class Counting(Watch):
    """Tells another one which phase it is, by counting steps."""

    def __init__(self, told: Watch, warm_up: int) -> None:
        self.told, self.warm_up, self.done = told, warm_up, 0
        self.effective, self.say = told.effective, told.say  # type: ignore[method-assign]
        told.phase(WARM_UP if warm_up else SAMPLING)

    def phase(self, name: str) -> None:
        """As it is."""
        self.told.phase(name)

    def step(self, done: int) -> None:
        """One more chunk."""
        before, self.done = self.done, self.done + done
        self.told.step(done)
        if before < self.warm_up <= self.done:
            self.phase(SAMPLING)
