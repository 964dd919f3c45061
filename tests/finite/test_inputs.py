import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture, InputError, network
from hierattn.finite.collapsed import FiniteWidth
from hierattn.finite.inputs import RandomInputs
from hierattn.layer.activations import clip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"width": 0}, "width: expected a positive whole number, got 0"),
        ({"width": 16.0}, "width: expected a positive whole number, got 16.0"),
        ({"width": True}, "width: expected a positive whole number, got True"),
        ({"width": None}, "width: expected a positive whole number, got None"),
        ({"width": "16"}, "width: expected a positive whole number, got '16'"),
        ({"width": 16, "tokens": -1}, "tokens: expected a positive whole number, got -1"),
        ({"width": 16, "tokens": None}, "tokens: expected a positive whole number, got None"),
        ({"width": 16, "queries": 0}, "queries: expected a positive whole number, got 0"),
        ({"width": 16, "activation": "swish"}, "activation: expected a function or one of identity, clip, relu"),
        ({"width": 16, "activation": 3}, "activation: expected a function or one of identity, clip, relu"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(InputError) as raised:
        RandomInputs(**arguments)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("activation", "linear"),
    [("identity", True), ("clip", True), (clip(60.0), True), (clip(2.0), False), ("relu", False), (lambda x: x, False)],
)
def test_only_inputs_that_never_meet_a_bound_are_linear(activation, linear):
    assert RandomInputs(16, activation=activation).linear is linear


def test_equal_inputs_are_one_static_argument():
    """Also with a function of one's own: nothing is compiled again for it."""

    def wave(x):
        return jnp.sin(x)

    for activation, other in [("clip", "relu"), (wave, jnp.sin)]:
        one, two = RandomInputs(np.int64(16), 3, activation, 2), RandomInputs(16, np.int32(3), activation, 2)
        assert one == two
        assert hash(one) == hash(two)
        different = [(17, 3, activation, 2), (16, 4, activation, 2), (16, 3, other, 2), (16, 3, activation)]
        assert all(one != RandomInputs(*arguments) for arguments in different)
    network._draw.clear_cache()
    for _ in range(2):
        network.simulate(jax.random.key(0), Architecture(), RandomInputs(4, 2, wave), 2)
    assert network._draw._cache_size() == 1


def test_sizes_are_whole_numbers_of_python():
    inputs = RandomInputs(np.int64(16), np.uint8(3), queries=np.int32(2))
    assert all(type(x) is int for x in (inputs.width, inputs.tokens, inputs.queries))
    assert inputs.shape == (2, 3)
    assert RandomInputs(16, 3).shape == (3, 3)


def test_any_function_can_be_the_activation():
    inputs = RandomInputs(16, 3, jnp.cos)
    X_q, X = network.draw_inputs(jax.random.key(0), inputs)
    preactivations = network.draw_inputs(jax.random.key(0), RandomInputs(16, 3, "identity"))[1]
    np.testing.assert_array_equal(X, jnp.cos(preactivations))
    assert X_q is X
    limit = FiniteWidth(Architecture(), inputs).limit
    np.testing.assert_allclose(limit.K, np.full((3, 3), np.exp(-1)) + np.diag([(1 - np.exp(-1)) ** 2 / 2] * 3), rtol=1e-5)
