"""A method whose chunks take a known time by a clock of its own, and whose draws are good or bad at will: no sampler."""

from dataclasses import dataclass, field

import numpy as np

from hierattn.inference.checkpoints import in_chunks
from hierattn.inference.course.budget import Budget
from hierattn.inference.course.watching import Watch
from hierattn.inference.methods.protocol import Method
from hierattn.inference.problem import Posterior
from hierattn.inference.verdict import convergence

CHUNK, WARM_UP, COMPILING = 50, 2, 10.0


class Clock:
    """Tells the time it was set to."""

    def __init__(self):
        self.now, self.compiled = 1000.0, 0.0

    def __call__(self):
        return self.now

    def compiling(self):
        return self.compiled

    def budget(self, seconds):
        return Budget(seconds, self, self.compiling)


@dataclass(frozen=True)
class Ticking(Method):
    """Every chunk takes `tick` seconds a network, the first 10 seconds more. Draws are independent after `good` draws."""

    name = "ticking"
    sampled = True
    clock: Clock = field(default_factory=Clock)
    tick: float = 0.05
    good: int = 200
    most_draws: int = 1000

    def refuses(self, problem):
        return None

    def prefers(self, problem):
        return "it ticks"

    @property
    def warm_up_steps(self):
        return WARM_UP * CHUNK

    @property
    def usual_steps(self):
        return self.warm_up_steps + 400

    @property
    def most_steps(self):
        return self.warm_up_steps + self.most_draws

    @property
    def likelihood_steps(self):
        return 100

    def settings(self):
        return {"method": self.name}

    def sample(self, problem, run):
        compiled = []

        def step(state, k):
            self.clock.now += self.tick * problem.observations.networks + (0.0 if compiled else COMPILING)
            self.clock.compiled += 0.0 if compiled else COMPILING
            compiled.append(k)
            run.advance(CHUNK)
            x = np.random.default_rng([run.seed, k]).normal(size=(3, run.chains, CHUNK))
            x[0] += 0.0 if (k + 1 - WARM_UP) * CHUNK >= self.good else 9.0 * np.arange(run.chains)[:, None]
            return state + 1, {"q": np.exp(0.1 * x[0]), "o": np.exp(0.1 * x[1]), "lp": x[2]} if k >= WARM_UP else {}

        for done in in_chunks(step, np.zeros(()), run.checkpoint):
            if len(done) > WARM_UP:
                parts = done[WARM_UP:][-4 if len(done) * CHUNK > self.good + 200 else 0 :]
                q, o, lp = (np.concatenate([part[name] for part in parts], axis=1) for name in ("q", "o", "lp"))
                draws, statistics = {"score_scale": q, "value_scale": o}, {"lp": lp}
                if run.ends((len(done) - WARM_UP) * CHUNK >= self.most_draws, convergence(draws, statistics)):
                    return Posterior(draws, statistics, self.name)


class Ear(Watch):
    """Remembers what it was told."""

    def __init__(self):
        self.said, self.phases = [], []
        self.say, self.phase = self.said.append, self.phases.append
