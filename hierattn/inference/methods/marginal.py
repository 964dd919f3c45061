"""Scores integrated out: on a grid for one observed token, by importance sampling for several with few coordinates."""

from dataclasses import dataclass

import numpy as np

from hierattn.inference.integration.integrated import Integrated
from hierattn.inference.methods import importance
from hierattn.inference.methods.one_token import grid
from hierattn.inference.methods.protocol import Method, Run, of_law
from hierattn.inference.problem import Posterior, Problem


@dataclass(frozen=True)
class Marginal(Method):
    """Independent draws of both scales. draws: of each chain; room: networks x scores of importance sampling at most."""

    name = "marginal"
    draws: int = 1000
    room: int = importance.ROOM

    def refuses(self, problem: Problem) -> str | None:
        """Kernels of each network, and several tokens at finite head_dim."""
        one = problem.observations.s == 1
        why_not = of_law(problem, *(grid.MODELS if one else ("limit_law",)))
        if why_not is not None:
            return why_not if one else f"{why_not}, unless one token is observed"
        if problem.K.ndim != 2:
            return "needs one kernel for all networks"
        if problem.layer.head_dim is not None and problem.layer.group_size > 1:
            return "knows no key_value_heads at finite head_dim: heads must share nothing"
        return None

    def prefers(self, problem: Problem) -> str | None:
        """For one token nothing is better."""
        return "one token: its scores can be integrated out exactly" if problem.observations.s == 1 else None

    def sample(self, problem: Problem, run: Run) -> Posterior:
        """By the number of tokens."""
        if problem.observations.s == 1:
            return grid.one_token(problem, run.seed, run.chains, self.draws)
        return importance.several_tokens(problem, run.seed, run.chains, self.draws, self.room)

    def log_likelihood(self, problem: Problem, found: Posterior, run: Run) -> Integrated | str:
        """By the law of one token's variance, or as for scores that were sampled."""
        if problem.observations.s > 1:
            return importance.limit_law_likelihood(problem, found, run)
        value = grid.log_likelihood(problem, found.draws["score_scale"], found.draws["value_scale"])
        return Integrated(value, np.zeros(value.shape[1]))
