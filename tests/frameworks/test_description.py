"""Conventions translated: exactly, weight by weight, and in distribution; mutants of the translation are rejected."""

import jax
import numpy as np
import pytest

from hierattn import InputError, Law, kernels, rotary_frequencies, sequence_mask
from hierattn.frameworks.description import describe
from hierattn.frameworks.measured import Grams, Tally
from hierattn.frameworks.runs import Linear, Norm, Run, outputs_of
from tests.frameworks import drawn
from tests.statistics import same_joint_law
from tests.variants import variants

RNG = np.random.default_rng(1)
X = 1.5 * RNG.normal(size=(4, 6))
NETWORKS = 4_000


def described(found):
    """Description, kernel and outputs (network, token, coordinate) of runs."""
    tally, grams = Tally(), Grams()
    for run in found:
        tally.add(run)
        grams.add(run.X_q, run.X)
    description, K = describe(found[0], tally, grams, "layer")
    offsets = [0 if run.maps["o"].b is None else run.maps["o"].b for run in found]
    y = np.stack([(run.y - b).reshape(-1, run.y.shape[-1]) for run, b in zip(found, offsets, strict=True)])
    return description, K, y


def test_weights_of_our_own_scales_give_the_same_outputs():
    """Entries in units of their standard deviation, put into our formula with the sigmas found: the outputs themselves."""
    run = drawn.run(RNG, X, heads=4, head_dim=3, factor=0.9, width=7)
    tally, grams = Tally(), Grams()
    tally.sums = {name: np.array([1.0, std**2, std**4]) for name, std in drawn.STD.items()}
    grams.add(run.X_q, run.X)
    layer = describe(run, tally, grams, "layer")[0].layer
    Z = {name: linear.W / drawn.STD[name] for name, linear in run.maps.items()}
    n, n_H, H = 6, 3, 4
    y = 0
    for a in range(H):
        rows = slice(a * n_H, (a + 1) * n_H)
        sigmas = zip("qkv", (layer.sigma_q, layer.sigma_k, layer.sigma_v), strict=True)
        q, k, v = (X @ (sigma * n**-0.5 * Z[x][:, rows]) for x, sigma in sigmas)
        A = np.exp(q @ k.T * n_H**-0.5)
        y = y + H**-0.5 * (A / A.sum(axis=1, keepdims=True)) @ v @ (layer.sigma_o * n_H**-0.5 * Z["o"][rows])
    np.testing.assert_allclose(y, run.y[0], rtol=1e-12)


@pytest.mark.parametrize("sizes", [{"q": 0.6, "v": 0.6}, {"q": 0.3, "v": 0.9, "k": 2.0}])
def test_a_bias_is_one_more_input(sizes):
    """q = X W + 1 b' = [X, c] [W; b / c], the new row of the others' variance if c^2 = var_b / var_W; keys' is not seen."""
    run = drawn.run(RNG, X, biases=sizes)

    def widened(name):
        c = sizes[name] / drawn.STD[name]
        inputs = np.concatenate([run.X[0], np.full((4, 1), c)], axis=1)
        return inputs, Linear(np.concatenate([run.maps[name].W, run.maps[name].b[None] / c]))

    (X_q, W_q), (X_v, W_v) = widened("q"), widened("v")
    W_k = Linear(np.concatenate([run.maps["k"].W, RNG.normal(size=(1, 8))]))  # any row: softmax does not see it
    maps = {"q": W_q, "k": W_k, "v": W_v, "o": run.maps["o"]}
    wide = Run(**vars(run) | {"X_q": X_q[None], "X": X_v[None], "maps": maps})
    np.testing.assert_allclose(outputs_of(wide), run.y, rtol=1e-12)
    tally, grams = Tally(), Grams()
    tally.sums = {name: np.array([1.0, std**2, std**4]) for name, std in drawn.STD.items()}
    tally.sums |= {f"b_{name}": np.array([1.0, std**2, std**4]) for name, std in sizes.items()}
    grams.add(run.X_q, run.X)
    description, K = describe(run, tally, grams, "layer")
    equal = sizes["q"] / drawn.STD["q"] == sizes["v"] / drawn.STD["v"]
    assert K.shape == ((1, 4, 4) if equal else (1, 8, 8))
    np.testing.assert_allclose(K[0, :4, :4], X_q @ X_q.T / 6)
    np.testing.assert_allclose(K[0, -4:, -4:], X_v @ X_v.T / 6)
    assert "one more input" in description.remarks[0]


def norms(kind, eps, q, k):
    """Of queries and keys, with gains that are the same for all coordinates of a head."""
    return tuple(Norm(kind, np.repeat(gain, 4), eps) for gain in (q, k))


CASES = {
    "rms, grouped, rotary": {"heads": 4, "groups": 2, "norms": norms("rms", 0.3, 2.0, 1.5), "rotary": rotary_frequencies(4)},
    "layer norm, factor": {"norms": norms("layer", 0.1, 1.5, 1.0), "factor": 0.8},
    "rms over all heads": {
        "heads": 4,
        "groups": 2,
        "norms": norms("rms_all", 0.3, [1.0, 2.0, 3.0, 1.0], [1.0, 2.0]),
        "biases": {name: 1.5 * drawn.STD[name] for name in "qkv"},
        "initialisers": {f"{b}{x}": ((f * drawn.STD[x]) ** 2,) for x in "qkv" for b, f in (("", 1.0), ("b_", 1.5))},
    },
    "cap, bias": {"cap": 0.8, "factor": 2.0, "bias": RNG.normal(size=(2, 4, 4))},
    "sinks, rotary in part": {"sinks": 1.5, "factor": 1.5, "rotary": rotary_frequencies(4)[:1]},
    "grouped, causal": {"heads": 4, "groups": 2, "allowed": np.tri(4, dtype=bool)[None]},
    "rotary, halves turned": {"rotary": rotary_frequencies(4), "factor": 2.0},
    "biases": {"biases": {"q": 1.2, "k": 0.8, "v": 0.9, "o": 0.7}},
    "crossed, bias": {"X_q": RNG.normal(size=(3, 7)), "bias": 0.7 * RNG.normal(size=(2, 3, 4))},
    "two sequences": {"X": np.stack([X, RNG.normal(size=X.shape)])[:, :3]},
}


OFTEN = ["biases", "rms, grouped, rotary", "sinks, rotary in part"]


@pytest.mark.parametrize("name", variants(CASES, OFTEN))
def test_the_law_of_the_description(name):
    """Exact at any width, as weights are Gaussian. Mutants: 1/sqrt(H) forgotten in sigma_o; scores twice as large."""
    rng = np.random.default_rng(2)
    case = CASES[name]
    setting = {"X": X, **case}
    description, K, y = described([drawn.run(rng, **setting) for _ in range(NETWORKS)])
    tokens = description.tokens

    def drawn_from(layer):
        rows = None if layer.mask is None else np.asarray(layer.allowed(K.shape[-1], K.shape[-1]))[tokens]
        bias = None if layer.bias is None else layer.bias[:, tokens]
        law = Law(layer.replace(mask=rows, bias=bias), K[0], K[0][np.ix_(tokens, tokens)])
        return law.sample(jax.random.key(3), NETWORKS, y.shape[-1])

    layer = description.layer
    assert same_joint_law(drawn_from(layer), y, rng)
    assert not same_joint_law(drawn_from(layer.replace(sigma_o=layer.sigma_o * layer.heads**-0.5)), y, rng)
    if "norms" in case:
        assert not same_joint_law(drawn_from(layer.replace(qk_gain=2 * layer.qk_gain)), y, rng)
    elif "groups" in case or "rotary" in case:
        assert not same_joint_law(drawn_from(layer.replace(sigma_q=2 * layer.sigma_q)), y, rng)
    if "cap" in case:
        assert not same_joint_law(drawn_from(layer.replace(cap=None)), y, rng)
    if "sinks" in case:
        assert not same_joint_law(drawn_from(layer.replace(sink=None, sink_scale=None)), y, rng)


def test_sequences_and_masks_are_blocks():
    allowed = np.stack([np.tri(3, dtype=bool), np.tile([True, True, False], (3, 1))])
    description, K, _ = described([drawn.run(RNG, RNG.normal(size=(2, 3, 6)), allowed=allowed)])
    expected = sequence_mask([3, 3])
    expected[:3, :3], expected[3:, 3:] = allowed
    np.testing.assert_array_equal(description.layer.mask, expected)
    assert K.shape == (1, 6, 6)
    assert described([drawn.run(RNG, X)])[0].layer.mask is None
    assert described([drawn.run(RNG, X, allowed=np.tri(4, dtype=bool)[None])])[0].layer.mask == "causal"


def test_norms_in_our_units():
    """sigma_q without the factor, as eps sees it; the factor is in the gain, with the gains of both, head by head."""
    q, k = (Norm("rms_all", np.repeat(gain, 4), 0.1) for gain in ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0]))
    run = drawn.run(RNG, X, heads=4, groups=2, norms=(q, k), factor=0.7)
    layer = described([run])[0].layer
    assert (layer.qk_norm, layer.qk_eps) == ("rms_all", 0.1)
    np.testing.assert_allclose(layer.qk_gain, 0.7 * 4**0.5 * np.array([1 * 5, 2 * 5, 3 * 6, 4 * 6]))
    measured = np.sqrt(6 * np.mean(run.maps["q"].W ** 2))
    assert layer.sigma_q == pytest.approx(measured)


def test_sinks_vary_or_not():
    first, *others = (drawn.run(RNG, X, sinks=0.3) for _ in range(200))
    layer = described([first])[0].layer
    np.testing.assert_array_equal(layer.sink, first.sinks)
    assert layer.sink_scale is None
    same = [Run(**vars(run) | {"sinks": first.sinks}) for run in others]
    assert described(same)[0].layer.sink_scale is None
    known = [Run(**vars(run) | {"initialisers": {"sink": (0.09,)}}) for run in others]
    description = described(known)[0]
    assert (description.layer.sink, description.layer.sink_scale) == (0.0, 0.3)
    assert description.variances["sink"].origin == "initialiser"
    shifted = [Run(**vars(run) | {"sinks": run.sinks + 1}) for run in known]
    description = described(shifted)[0]
    sinks = np.array([run.sinks for run in shifted])
    assert (description.layer.sink, description.layer.sink_scale) == pytest.approx((sinks.mean(), sinks.std()))
    assert description.variances["sink"].origin == "measured"


def test_windows_are_said_as_such():
    apart = np.subtract.outer(np.arange(4), np.arange(4))
    for allowed, mask, window in (
        (apart == 0, None, 1),
        ((apart >= 0) & (apart < 3), "causal", 3),
        (abs(apart) < 2, None, 2),
        (abs(apart) < 4, None, None),
    ):
        layer = described([drawn.run(RNG, X, allowed=allowed[None])])[0].layer
        assert (layer.mask, layer.window) == (mask, window)
    other = (apart >= 0) & (apart < 2)
    other[3, 0] = True
    layer = described([drawn.run(RNG, X, allowed=other[None])])[0].layer
    np.testing.assert_array_equal(layer.mask, other)
    assert layer.window is None


def test_kernels_are_one_or_one_a_network():
    found = [drawn.run(RNG, RNG.normal(size=(4, 6))) for _ in range(3)]
    np.testing.assert_allclose(described(found)[1], np.stack([kernels.from_inputs(run.X[0]) for run in found]))
    crossed = [drawn.run(RNG, X, X_q=RNG.normal(size=(3, 7))) for _ in range(3)]
    _, K, _ = described(crossed)
    assert K.shape == (3, 7, 7)
    np.testing.assert_allclose(K[1, :3, :3], kernels.from_inputs(crossed[1].X_q[0]))
    np.testing.assert_allclose(K[1, 3:, 3:], kernels.from_inputs(X))


def test_variances_are_the_initialisers_if_weights_agree():
    tally = Tally()
    for _ in range(50):
        tally.add(drawn.run(RNG, X))
    found = tally.variance("q", (0.5, 0.09))
    assert (found.value, found.error, found.origin) == (0.09, 0.0, "initialiser")
    found = tally.variance("q", (0.06,))
    assert found.origin == "measured"
    assert abs(found.value - 0.09) < 4 * found.error < 0.02
    assert tally.variance("b_q").origin == "none"


def test_what_cannot_be_described():
    biases = {"q": 1.0, "v": 0.1}
    with pytest.raises(InputError, match="one kernel of queries and keys for rotary embeddings"):
        described([drawn.run(RNG, X, biases=biases, rotary=rotary_frequencies(4))])
    remarks = described([drawn.run(RNG, X, biases={"k": 1.0, "o": 1.0}, rotary=rotary_frequencies(4))])[0].remarks
    assert any("turn the keys' bias" in remark for remark in remarks)
    assert "the bias after W^O was taken off the outputs" in remarks
    for more in ({"norms": norms("rms", 0.0, 1.0, 1.0)}, {"cap": 1.0}, {"sinks": 1.0}):
        with pytest.raises(InputError, match="equal biases of keys and values beside"):
            described([drawn.run(RNG, X, biases={"k": 1.0}, **more)])
    gains = Norm("rms", np.array([1.0, 1, 1, 2]), 0.1), Norm("rms", np.ones(4), 0.1)
    with pytest.raises(InputError, match="gains that are the same for all coordinates of a head, got others"):
        described([drawn.run(RNG, X, norms=gains)])
    with pytest.raises(InputError, match=r"one eps of queries and keys, got 0.1 and 0.2"):
        described([drawn.run(RNG, X, norms=(gains[1], gains[1]._replace(eps=0.2)))])
    run = drawn.run(RNG, X)
    zero = run.maps | {"o": Linear(np.zeros_like(run.maps["o"].W))}
    with pytest.raises(InputError, match="layer: expected weights that are not zero"):
        described([Run(**vars(run) | {"maps": zero})])
