"""The loop over networks: reproducible, streamed, honest about what it cannot do; and what diagnose and fit make of it."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import hierattn as ha
from hierattn import InputError
from hierattn.base.provenance import digest
from hierattn.frameworks.networks import seed_of
from hierattn.inference.fitting import layer_of
from hierattn.observed import statistics

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 16)).astype(np.float32)


def build(seed):
    init = nnx.initializers.normal(0.5)
    return nnx.MultiHeadAttention(num_heads=2, in_features=16, decode=False, kernel_init=init, rngs=nnx.Rngs(seed))


class Halved(nnx.Module):
    """A layer that is not known: half of its input."""

    def __init__(self, seed):
        self.scale = nnx.Param(np.float32(seed % 7 + 1))

    def __call__(self, x):
        return self.scale[...] * x / 2, None


class Wrapped(nnx.Module):
    def __init__(self, seed):
        self.attention = Halved(seed)

    def __call__(self, x):
        return self.attention(x)[0]


@pytest.fixture(scope="module")
def captured():
    return ha.capture(build, X, networks=60, seed=3)


def test_outputs_are_those_of_the_networks(captured):
    first = [build(seed_of(3, m)) for m in range(2)]
    for m, network in enumerate(first):
        np.testing.assert_array_equal(captured.outputs[m], network(X))
    np.testing.assert_allclose(captured.S, np.einsum("mic,mjc->mij", *2 * [captured.outputs.astype(float)]), rtol=1e-6)
    np.testing.assert_array_equal(captured.kernel, ha.kernels.from_inputs(X.astype(float)))
    fewer = ha.capture(build, X, networks=4, seed=3)
    np.testing.assert_array_equal(fewer.outputs, captured.outputs[:4])
    assert not np.array_equal(ha.capture(build, X, networks=1, seed=4).outputs, fewer.outputs[:1])


def test_raw_outputs_may_be_cut_but_not_their_statistics(captured, monkeypatch):
    few = ha.capture(build, X, networks=5, seed=3, coordinates=2)
    np.testing.assert_array_equal(few.outputs, captured.outputs[:5, :, :2])
    np.testing.assert_array_equal(few.S, captured.S[:5])
    assert (few.coordinates, few.complete, captured.complete) == (16, False, True)
    assert few.sha256 == digest(captured.outputs[:5])  # of all, not of what is kept
    monkeypatch.setattr(statistics, "KEPT", 4 * 5 * 3 * 7)
    assert ha.capture(build, X, networks=5, seed=3).outputs.shape == (5, 3, 7)
    with pytest.raises(ha.UnsafeInputError, match="networks: expected at most"):
        ha.capture(build, X, networks=2**24)


def test_the_law_is_fixed_in_advance(captured):
    layer = layer_of(captured)
    assert (layer.heads, layer.head_dim, layer.mask) == (2, 8, None)
    var = captured.description.variances
    assert all(var[name].origin == "measured" and abs(var[name].value - 0.25) < 5 * var[name].error for name in "qkvo")
    assert captured.description.scales["score_scale"] == pytest.approx(4.0, rel=0.02)
    found = ha.diagnose(captured)
    assert (found.consistent is not False, found.subject.origin, found.subject.free) == (True, "given", frozenset())
    wrong = ha.diagnose(captured, value_scale=1.5 * captured.description.scales["value_scale"])
    assert (wrong.consistent, wrong.codes[0]) == (False, "scale")


def test_a_fit_says_that_it_takes_head_dim_as_infinite(captured):
    tree = ha.fit(captured.first(20), method="moments", log_likelihood=False)
    assert "head_dim_infinite" in tree.attrs["reasons"]


def test_small_initialisers_leave_it_undecided_and_say_so_first():
    def small(seed):
        init = nnx.initializers.normal(0.02)
        return nnx.MultiHeadAttention(num_heads=2, in_features=16, decode=False, kernel_init=init, rngs=nnx.Rngs(seed))

    found = ha.diagnose(ha.capture(small, X, networks=40))
    assert (found.verdict, found.codes[0]) == ("UNDECIDED", "low_power")
    assert "40 networks" in str(found).splitlines()[1]


def test_sequences_of_one_network():
    batch = RNG.normal(size=(4, 3, 16)).astype(np.float32)
    found = ha.capture(build(0), batch)
    assert found.outputs.shape == (1, 12, 16)
    np.testing.assert_array_equal(found.mask, ha.sequence_mask([3, 3, 3, 3]))
    np.testing.assert_allclose(found.kernel, ha.kernels.from_inputs(batch.reshape(12, 16).astype(float)))
    assert ha.diagnose(found).codes == ["low_power"]


def test_a_module_described_by_hand():
    with pytest.raises(InputError) as raised:
        ha.capture(Wrapped, X)
    assert "none among attention (Halved), the model itself (Wrapped); describe it by hand" in str(raised.value)
    layer = ha.Architecture(heads=2, head_dim=8, sigma_o=0.7)
    with pytest.raises(InputError, match="module: expected the name of a part of the model"):
        ha.capture(Wrapped, X, layer=layer)
    found = ha.capture(Wrapped, X, networks=3, module="attention", layer=layer)
    scales = np.array([seed_of(0, m) % 7 + 1 for m in range(3)])
    np.testing.assert_allclose(found.outputs, scales[:, None, None] * X / 2)
    assert (found.layer.sigma_o, found.heads, found.description.variances) == (0.7, 2, {})


def test_outputs_that_are_no_numbers():
    """Not only those that are kept."""

    class Spoiled(Wrapped):
        def __call__(self, x):
            return self.attention(x.at[0, -1].set(np.nan) if seen.append(x) or len(seen) == 2 else x)[0]

    seen, layer = [], ha.Architecture()
    with pytest.raises(InputError, match="model: expected finite outputs, got NaN or infinity in network 1"):
        ha.capture(Spoiled, jnp.asarray(X), networks=3, module="attention", layer=layer, coordinates=1)


def test_models_that_cannot_be_used():
    with pytest.raises(InputError, match="a PyTorch or Flax model, or a function that builds one, got int"):
        ha.capture(3, X)
    with pytest.raises(InputError, match="got one that returns int"):
        ha.capture(lambda: 3, X)
    with pytest.raises(InputError, match="inputs: expected arguments of a call of the model, got none"):
        ha.capture(build)
    with pytest.raises(InputError, match="weights drawn anew for every network, got those of the first in network 1"):
        ha.capture(lambda: build(0), X, networks=2)
    with pytest.raises(InputError, match="module: expected a number below 1"):
        ha.capture(build, X, module=1)
    with pytest.raises(InputError, match="module: expected one of the model itself"):
        ha.capture(build, X, module="attention")
    heads = iter([2, 2, 4])
    other = lambda seed: nnx.MultiHeadAttention(next(heads), 16, decode=False, rngs=nnx.Rngs(seed))  # noqa: E731
    with pytest.raises(InputError, match="the same heads, norms, mask and positions in all networks, got others in network 1"):
        ha.capture(other, X, networks=2)


def test_where_a_function_takes_its_seed():
    def named(heads=2, seed=None):
        return build(seed)

    expected = build(seed_of(1, 0))(X)
    for function in (build, named, lambda any_name: build(any_name)):
        np.testing.assert_array_equal(ha.capture(function, X, seed=1).outputs[0], expected)


def test_a_function_may_return_inputs_and_progress_is_told():
    done = []
    found = ha.capture(lambda seed=0: (build(seed), X), networks=3, advance=done.append)
    assert (done, found.networks) == ([1, 1, 1], 3)
