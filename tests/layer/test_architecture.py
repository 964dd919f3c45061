import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture, InputError, rotary_frequencies, sequence_mask
from hierattn.layer.positions import rotate
from tests.explicit import turn


def test_scales_are_products_one_per_head():
    layer = Architecture(heads=2, sigma_q=[1.0, 2.0], sigma_k=3.0, sigma_v=0.5, sigma_o=4.0)
    np.testing.assert_array_equal(layer.score_scale, [3.0, 6.0])
    np.testing.assert_array_equal(layer.value_scale, [2.0, 2.0])
    changed = layer.with_scales(1.5, 2.5)
    np.testing.assert_array_equal(changed.score_scale, [1.5, 1.5])
    np.testing.assert_array_equal(changed.value_scale, [2.5, 2.5])


@pytest.mark.parametrize(("scaling", "head_dim", "factor"), [("sqrt", 7, 1.0), ("linear", 16, 0.25), ("linear", None, 0.0)])
def test_score_factor(scaling, head_dim, factor):
    assert Architecture(scaling=scaling, head_dim=head_dim).score_factor == factor


def test_attention_rows_are_weights_over_allowed_keys():
    p = jax.random.normal(jax.random.key(0), (2, 4, 4))
    A = Architecture(heads=2, mask="causal").attention(p)
    expected = np.tril(np.exp(p))
    np.testing.assert_allclose(A, expected / expected.sum(axis=-1, keepdims=True), rtol=1e-6, atol=0)


def test_bias_is_added_to_the_scores():
    p, bias = jax.random.normal(jax.random.key(0), (2, 3, 3)), np.arange(18.0).reshape(2, 3, 3)
    biased, plain = Architecture(heads=2, bias=bias), Architecture(heads=2)
    np.testing.assert_allclose(biased.attention(p), plain.attention(p + bias), rtol=1e-5)


def test_identity_scores_are_the_weights_themselves():
    p = jax.random.normal(jax.random.key(0), (1, 3, 3))
    np.testing.assert_array_equal(Architecture(mask="causal", score_function="identity").attention(p), np.tril(p))


def test_sequences_see_only_themselves():
    expected = np.array([[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 1, 1, 1]], bool)
    np.testing.assert_array_equal(sequence_mask([2, 3]), expected)
    np.testing.assert_array_equal(sequence_mask([2, 3], causal=True), np.tril(expected))


def test_rotate_is_multiplication_by_a_phase():
    x = jax.random.normal(jax.random.key(0), (5, 8))
    np.testing.assert_allclose(rotate(x, rotary_frequencies(8)), turn(np.asarray(x), rotary_frequencies(8)), atol=2e-6)


@pytest.mark.parametrize("mask", ["causal", None, np.tri(3, dtype=bool)])
def test_is_a_pytree(mask):
    layer = Architecture(heads=2, mask=mask, sigma_q=2.0, bias=np.ones((3, 3)), rotary=np.ones(2))
    leaves, tree = jax.tree.flatten(layer)
    again = jax.tree.unflatten(tree, leaves)
    assert again.mask is mask or np.array_equal(again.mask, mask)
    for name in ("heads", "head_dim", "sigma_q", "scaling", "score_function"):
        assert getattr(again, name) == getattr(layer, name)
    assert jax.grad(lambda q: layer.with_scales(q, 1.0).score_scale.sum())(3.0) == 2.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"heads": 0}, "heads: expected a positive whole number, got 0"),
        ({"heads": 2.0}, "heads: expected a positive whole number, got 2.0"),
        ({"heads": True}, "heads: expected a positive whole number, got True"),
        ({"head_dim": -1}, "head_dim: expected a positive whole number or None, got -1"),
        ({"heads": 4, "key_value_heads": 3}, "key_value_heads: expected a divisor of heads = 4, got 3"),
        ({"sigma_q": -1.0}, "sigma_q: expected numbers that are 0 or between 1e-30 and 1e30"),
        ({"sigma_q": float("nan")}, "sigma_q: expected numbers that are 0 or between"),
        ({"sigma_q": 1e200}, "sigma_q: expected numbers that are 0 or between"),
        ({"sigma_v": "x"}, "sigma_v: expected an array of numbers, got str"),
        ({"bias": "x"}, "bias: expected an array of numbers, got str"),
        ({"rotary": [[1.0], 2.0]}, "rotary: expected an array of numbers, got list"),
        ({"sigma_v": [1.0, 2.0, 3.0], "heads": 2}, "sigma_v: expected a number or 2 numbers"),
        ({"heads": 2, "key_value_heads": 1, "sigma_k": [1.0, 2.0]}, "sigma_k: expected one value for all heads that share"),
        ({"scaling": "cubic"}, "scaling: expected one of sqrt, linear, got 'cubic'"),
        ({"score_function": "tanh"}, "score_function: expected one of softmax, identity"),
        ({"qk_norm": "max"}, "qk_norm: expected one of rms, layer, rms_all, got 'max'"),
        ({"qk_gain": 2.0}, "qk_gain: expected 1 where queries and keys are not normed, got 2.0; say qk_norm='rms'"),
        ({"qk_eps": 0.1}, "qk_eps: expected 0 where queries and keys are not normed, got 0.1"),
        ({"qk_norm": "rms", "qk_eps": -1.0}, "qk_eps: expected one number of at least 0, got -1.0"),
        ({"qk_norm": "rms", "sigma_k": 0.0}, "sigma_k: expected a positive number where queries and keys are normed"),
        ({"qk_norm": "rms_all", "heads": 2, "sigma_q": [1.0, 2.0]}, "sigma_q: expected one number where queries and keys are"),
        ({"qk_norm": "layer", "head_dim": 1}, "qk_norm: expected 'rms' for heads of one dimension"),
        ({"cap": 0.0}, "cap: expected one positive number, got 0.0"),
        ({"cap": np.inf}, "cap: expected one positive number, got inf"),
        ({"sink": np.nan}, "sink: expected a finite number or 1, one per head, got nan"),
        ({"sink": 0.0, "score_function": "sigmoid"}, "sink: expected None with score_function 'sigmoid', got a number"),
        ({"sink_scale": 0.1}, "sink: expected the mean of sinks that vary, got None; give sink=0.0"),
        ({"sink": 0.0, "sink_scale": 0.1, "cap": 3.0}, "cap: expected None with sinks that vary between networks, got 3.0"),
        ({"window": 0}, "window: expected a positive whole number or None, got 0"),
        ({"chunk": 1.5}, "chunk: expected a positive whole number or None, got 1.5"),
        ({"mask": "casual"}, "mask: expected one of causal, got 'casual'"),
        ({"mask": np.ones((2, 2))}, "mask: expected None, 'causal' or a boolean"),
        ({"mask": np.array([[True, True], [False, False]])}, "mask: expected at least one allowed key for every query"),
        ({"bias": np.ones(3)}, "bias: expected shape"),
        ({"bias": np.full((2, 2), np.inf)}, "bias: expected finite numbers, got NaN or infinity; use mask"),
        ({"rotary": np.ones(3), "head_dim": 8}, "rotary: expected head_dim / 2 = 4 frequencies, got 3"),
        ({"rotary": np.ones((2, 2))}, "rotary: expected a vector of finite frequencies"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(InputError) as raised:
        Architecture(**arguments)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_helpers_refuse_nonsense():
    with pytest.raises(InputError, match="lengths: expected"):
        sequence_mask([2, 0])
    np.testing.assert_array_equal(sequence_mask(np.array([2, 3])), sequence_mask([2, 3]))
    for bad in (7, "8"):
        with pytest.raises(InputError, match="head_dim: expected an even number"):
            rotary_frequencies(bad)
    with pytest.raises(InputError, match="mask: expected shape"):
        Architecture(mask=np.ones((3, 3), bool)).allowed(4, 4)
    with pytest.raises(InputError, match="mask: expected a boolean"):
        Architecture(mask="causal").allowed(2, 4)
    with pytest.raises(InputError, match="window: expected None for cross-attention"):
        Architecture(window=2).allowed(2, 4)
    with pytest.raises(InputError, match="mask: expected at least one allowed key for every query, got none for query 0"):
        Architecture(window=1, mask=~np.eye(3, dtype=bool)).allowed(3, 3)
    with pytest.raises(InputError, match="score_function: expected tokens that look at themselves for shaped attention"):
        Architecture(score_function="shaped", mask=~np.eye(3, dtype=bool)).weighing(3, 3)


def test_extreme_scores_have_finite_gradients():
    layer = Architecture(mask="causal")
    p = 1e6 * jax.random.normal(jax.random.key(0), (1, 4, 4))
    gradient = jax.grad(lambda p: jnp.sum(layer.attention(p) ** 2))(p)
    assert np.all(np.isfinite(gradient))
