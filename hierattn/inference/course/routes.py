"""Ways to an end in time, when a fit would take longer than its budget: fewer networks, or estimates from moments.

For score_scale and value_scale the posterior of some networks is an honest one, only wider: networks are independent.
"""

from typing import Any

from hierattn.base.errors import unusable
from hierattn.base.reasons import reason
from hierattn.inference.course.budget import in_words
from hierattn.inference.course.pace import Pace, wider
from hierattn.inference.methods.registry import ASKED, method_of
from hierattn.inference.problem import Problem, pose

FEWEST = 20  # networks, below which moments of all say more
MINUTE = 60.0


class TooLongError(Exception):
    """A fit was given up for one that ends in time: `plan`."""

    def __init__(self, plan: Any) -> None:
        super().__init__()
        self.plan = plan


def judge(planned: Any, pace: Pace) -> None:
    """Take another route, if `auto` may choose and there is one; refuse a method asked for that has no time to begin."""
    problem, expected = planned.problem, pace.until(pace.usual)
    few = pace.affordable(problem.observations.networks)
    if planned.why == ASKED:
        if pace.until(pace.warm_up) > pace.budget.seconds:
            raise _no_time(problem, pace, expected, few)
        return
    because = f"{pace.method.name} on all {problem.observations.networks:,} networks would take about {in_words(expected)}, "
    because += f"more than the budget of {pace.budget.words}"
    numbers = {"seconds": expected, "budget": pace.budget.seconds}
    moments = method_of("moments")
    if few < FEWEST and moments.refuses(problem) is None:
        message = f"{because}: these are estimates from moments, no posterior; for that use --budget none (budget=None)"
        remarks = (*planned.remarks, reason("budget", message, **numbers))
        raise TooLongError(planned._replace(method=moments, why="the posterior takes longer than the budget", remarks=remarks))
    if 2 <= few < problem.observations.networks:
        raise TooLongError(some_networks(planned, few, f"{because}: ", **numbers))


def some_networks(planned: Any, networks: int, because: str, **numbers: float) -> Any:
    """The same plan for the first so many networks, with the reason."""
    problem, of = planned.problem, planned.problem.observations.networks
    observations = problem.observations.first(networks)
    message = f"{because}the first {networks:,} of {of:,} networks were fitted, whose intervals are about "
    message += f"{wider(networks, of):.1f} times as wide; for all use --budget none (budget=None)"
    remark = reason("budget", message, networks=networks, of=of, **numbers)
    posed = pose(observations, problem.layer, problem.model, planned.prior)
    return planned._replace(problem=posed, remarks=(*planned.remarks, remark))


def _no_time(problem: Problem, pace: Pace, expected: float, few: int) -> Exception:
    networks = f", --networks {few}" if 2 <= few < problem.observations.networks else ""
    moments = ", --method moments" if method_of("moments").refuses(problem) is None else ""
    enough = -(-expected // MINUTE)
    remedy = f"give --budget {enough:.0f}m{networks}{moments} or --method auto"
    return unusable("budget", f"about {in_words(expected)} for {pace.method.name}", pace.budget.words, remedy)
