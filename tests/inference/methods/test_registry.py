"""Which method fits what: those asked for, and those that auto takes; refusals in words."""

import numpy as np
import pytest

from hierattn import Architecture, InputError, Observations
from hierattn.inference.calling import lookup
from hierattn.inference.methods import registry
from hierattn.inference.methods.marginal import Marginal
from hierattn.inference.methods.moments import MANY
from hierattn.inference.methods.networkwise import Networkwise
from hierattn.inference.methods.nuts import Nuts
from hierattn.inference.methods.protocol import Method, Run
from hierattn.inference.methods.registry import choose_method, method_of
from hierattn.inference.problem import Posterior, pose

LAYER, Y = Architecture(heads=2), np.random.default_rng(0).normal(size=(4, 3, 2))
EACH = np.tile(np.eye(3), (4, 1, 1))


def posed(layer=LAYER, model="limit_law", kernel="identity", y=Y, **known):
    return pose(Observations(y, kernel=kernel, heads=layer.heads, **known), layer, lookup(model), None)


ONE = {"y": Y[:, :1], "kernel": np.eye(3), "tokens": [1]}
NARROW = LAYER.replace(head_dim=4)
LONG = np.random.default_rng(0).normal(size=(4, 33, 1))
MANY_Y = np.random.default_rng(0).normal(size=(MANY // 32 + 1, 4, 1))
AUTO = {
    "networkwise": [
        posed(),
        posed(kernel=EACH),
        posed(LAYER.replace(score_function="identity")),
        posed(NARROW, "finite_head_dim"),
        posed(NARROW, "finite_head_dim", kernel=EACH),
        posed(NARROW.replace(rotary=[1.0, 0.1], scaling="linear"), "finite_head_dim"),
        posed(LAYER.replace(rotary=[1.0])),
        posed(NARROW.replace(key_value_heads=1), "finite_head_dim", **ONE),
        posed(model="kernel_unknown", kernel=None),
    ],
    "marginal": [posed(**ONE), posed(NARROW, "finite_head_dim", **ONE)],
    "moments": [posed(y=MANY_Y)],
    "nuts": [
        posed(LAYER.replace(mask="causal"), model="separate_kernels", kernel=None),
        posed(LAYER.replace(rotary=[1.0]), model="kernel_unknown", kernel=None),
        posed(model="student_t"),
        posed(LAYER.replace(rotary=[1.0]), kernel=np.eye(33), y=LONG),
        posed(
            model="limit_law",
            kernel=np.tile(np.eye(3), (4, 1, 1)),
            y=Y[:, :1],
            tokens=[0],
            layer=LAYER.replace(scaling="linear"),
        ),
    ],
}


@pytest.mark.parametrize(("name", "problem"), [(name, problem) for name, problems in AUTO.items() for problem in problems])
def test_auto_asks_the_methods(name, problem):
    method, why = choose_method(problem, "auto")
    assert method.name == name
    assert why == method.prefers(problem)
    assert method.refuses(problem) is None
    assert "fast" not in why
    assert "exact and" not in why


REFUSED = [
    ("networkwise", posed(model="student_t"), "fits limit_law and finite_head_dim, not the model student_t"),
    (
        "networkwise",
        posed(LAYER.replace(rotary=[1.0]), kernel=np.eye(33), y=LONG),
        "knows rotary embeddings at infinite head_dim for 32 tokens at most",
    ),
    ("networkwise", posed(model="kernel_unknown", kernel=None, y=Y[:, :1]), "needs two tokens for an unknown kernel"),
    (
        "networkwise",
        posed(LAYER.replace(rotary=[1.0]), model="kernel_unknown", kernel=None),
        "knows rotary embeddings with a known kernel only",
    ),
    ("networkwise", posed(LAYER.replace(scaling="linear")), "knows no scaling 'linear'"),
    ("networkwise", posed(NARROW), "takes head_dim as infinite"),
    ("marginal", posed(kernel=EACH), "needs one kernel for all networks"),
    (
        "marginal",
        posed(NARROW, "finite_head_dim"),
        "not the model finite_head_dim, unless one token is observed",
    ),
    (
        "marginal",
        posed(NARROW.replace(key_value_heads=1), "finite_head_dim", **ONE),
        "knows no key_value_heads at finite head_dim",
    ),
    ("moments", posed(kernel=EACH), "needs one kernel for all networks"),
]


@pytest.mark.parametrize(("name", "problem", "words"), REFUSED)
def test_a_method_says_why_it_cannot(name, problem, words):
    assert words in method_of(name).refuses(problem)
    with pytest.raises(InputError) as raised:
        choose_method(problem, name)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_methods_may_be_asked_for():
    for name in ("networkwise", "marginal", "moments", "nuts"):
        assert choose_method(posed(), name) == (method_of(name), "asked for")
    chosen, why = choose_method(posed(), Networkwise(most_draws=7))
    assert (chosen.most_draws, why) == (7, "asked for")
    assert choose_method(posed(), (Marginal(), Networkwise(most_draws=7), Nuts()))[0].most_draws == 7
    with pytest.raises(InputError, match="got marginal, which should be asked for by name; give another model"):
        choose_method(posed(), (Marginal(),))
    with pytest.raises(InputError, match="method: expected one of auto, marginal, moments, networkwise, nuts, got 'magic'"):
        choose_method(posed(), "magic")


def test_a_method_of_ones_own():
    """What the protocol asks for is enough."""

    class Guess(Method):
        name = "guess"

        def refuses(self, problem):
            return None if problem.observations.s == 3 else "knows three tokens alone"

        def sample(self, problem, run):
            return Posterior({"score_scale": np.ones((run.chains, 5))}, {"lp": np.zeros((run.chains, 5))}, self.name)

    chosen, _ = choose_method(posed(), Guess())
    assert chosen.sample(posed(), Run(chains=3)).draws["score_scale"].shape == (3, 5)
    assert chosen.log_likelihood(posed(), None, Run()) == "the method guess has no likelihood"
    assert chosen.settings() == {"method": "guess"}
    with pytest.raises(InputError, match="got guess, which knows three tokens alone"):
        choose_method(posed(**ONE), Guess())


def test_methods_have_the_names_they_are_known_by():
    assert ("auto", *(method_of(name).name for name in registry.METHODS)) == registry.NAMES
    for name in registry.METHODS:
        method = method_of(name)
        assert method.settings()["method"] == name
        assert (method.most_steps > 1) == method.sampled
