"""The formula, against plain loops; masks and biases from what is added to scores; layers that do something else."""

import numpy as np
import pytest

from hierattn import InputError, rotary_frequencies
from hierattn.frameworks import runs
from hierattn.frameworks.runs import Linear, Norm, Run
from tests.frameworks import drawn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 6))


def by_loops(run):
    """The same outputs, one head, query and key at a time; rotations as complex numbers."""
    y = np.zeros_like(run.y)

    def normed(x, name):
        """(token, all heads' coordinates)"""
        if run.norms is None:
            return x
        norm, x = run.norms["qk".index(name)], x.copy()
        size = x.shape[1] if norm.kind == "rms_all" else run.head_dim
        for i in range(len(x)):
            for start in range(0, x.shape[1], size):
                part = x[i, start : start + size]
                part = part - part.mean() if norm.kind == "layer" else part
                unit = part / np.sqrt(part @ part / size + norm.eps)
                x[i, start : start + size] = unit * np.resize(norm.gain, size)
        return x

    n_H, shared = run.head_dim, run.heads // run.key_value_heads
    for b in range(len(run.X)):
        for a in range(run.heads):
            rows, owners = slice(a * n_H, (a + 1) * n_H), slice(a // shared * n_H, (a // shared + 1) * n_H)
            whole = {
                name: x @ run.maps[name].W + (0 if run.maps[name].b is None else run.maps[name].b)
                for name, x in (("q", run.X_q[b]), ("k", run.X[b]), ("v", run.X[b]))
            }
            q, k, v = normed(whole["q"], "q")[:, rows], normed(whole["k"], "k")[:, owners], whole["v"][:, owners]
            for i in range(len(q)):
                keys = [j for j in range(len(k)) if run.allowed[b, i, j]]
                p = []
                for j in keys:
                    if run.rotary is None:
                        score = q[i] @ k[j]
                    else:
                        B = len(run.rotary)
                        one, two = q[i, :B] + 1j * q[i, B : 2 * B], k[j, :B] + 1j * k[j, B : 2 * B]
                        score = np.sum(one * two.conj() * np.exp(1j * run.rotary * (i - j))).real
                        score += q[i, 2 * B :] @ k[j, 2 * B :]
                    score *= run.factor
                    score = score if run.cap is None else run.cap * np.tanh(score / run.cap)
                    p.append(score + (0 if run.bias is None else run.bias[a, i, j]))
                A = np.exp(p) / (np.exp(p).sum() + (0 if run.sinks is None else np.exp(run.sinks[a])))
                y[b, i] += A @ v[keys] @ run.maps["o"].W[rows]
    return y + (0 if run.maps["o"].b is None else run.maps["o"].b)


GAINS = {"q": 0.5 + RNG.random(4), "k": 0.5 + RNG.random(4), "all q": 0.5 + RNG.random(16), "all k": 0.5 + RNG.random(8)}
RMS = Norm("rms", GAINS["q"], 0.1), Norm("rms", GAINS["k"], 0.2)
LAYER = Norm("layer", GAINS["q"], 0.1), Norm("layer", GAINS["k"], 0.1)
ALL = Norm("rms_all", GAINS["all q"], 0.1), Norm("rms_all", GAINS["all k"], 0.1)
SETTINGS = {
    "plain": {},
    "rms": {"norms": RMS, "rotary": rotary_frequencies(4)},
    "layer norm": {"norms": LAYER, "biases": dict.fromkeys("qk", 0.5)},
    "rms over all heads": {"norms": ALL, "heads": 4, "groups": 2},
    "rotary in part": {"rotary": rotary_frequencies(4)[:1]},
    "cap, bias": {"cap": 0.7, "bias": RNG.normal(size=(2, 5, 5))},
    "sinks": {"sinks": 1.0, "allowed": np.tile(np.tri(5, dtype=bool), (2, 1, 1))},
    "grouped, causal": {"heads": 4, "groups": 2, "allowed": np.tile(np.tri(5, dtype=bool), (2, 1, 1))},
    "rotary": {"rotary": rotary_frequencies(4)},
    "bias, biases, factor": {"bias": RNG.normal(size=(2, 5, 5)), "biases": dict.fromkeys("qkvo", 0.5), "factor": 1.0},
    "crossed": {"X_q": RNG.normal(size=(2, 3, 7))},
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_formula_against_loops(setting):
    run = drawn.run(RNG, X, **setting)
    np.testing.assert_allclose(run.y, by_loops(run), rtol=1e-12, atol=1e-12)
    runs.check(run, "layer")


def test_a_layer_that_does_more_is_refused():
    run = drawn.run(RNG, X, allowed=np.tile(np.tri(5, dtype=bool), (2, 1, 1)))
    changed = {"factor": 0.4}, {"rotary": rotary_frequencies(4)}, {"norms": RMS}, {"cap": 1.0}, {"sinks": np.zeros(2)}
    for changes in ({"allowed": np.ones((2, 5, 5), bool)}, *changed):
        with pytest.raises(InputError, match=r"layer: expected outputs that its weights, mask and .* explain, got .*by hand"):
            runs.check(Run(**vars(run) | changes), "layer")
    with pytest.raises(InputError, match=r"expected numbers in float32 or float64, got float16; use model.float"):
        runs.check(Run(**vars(run) | {"y": run.y.astype(np.float16)}), "layer")
    empty = run.allowed.copy()
    empty[1, 2] = False
    with pytest.raises(InputError, match=r"at least one key for every query, got none for \(sequence, token\) \[1, 2\]"):
        runs.check(Run(**vars(run) | {"allowed": empty}), "layer")
    with pytest.raises(InputError, match="at most 4 coordinates turned by rotary embeddings, got 6"):
        runs.check(Run(**vars(run) | {"rotary": np.ones(3)}), "layer")
    with pytest.raises(InputError, match="weights of their own, got the same for q and k"):
        runs.check(Run(**vars(run) | {"maps": run.maps | {"k": run.maps["q"]}}), "layer")
    maps = run.maps | {"o": Linear(run.maps["o"].W[:-1])}
    with pytest.raises(InputError, match="expected maps of 2 heads"):
        runs.check(Run(**vars(run) | {"maps": maps}), "layer")


def test_settings_are_the_same_or_not():
    one = drawn.run(RNG, X, norms=RMS, cap=1.0, sinks=1.0)
    assert one.same_setting(
        drawn.run(RNG, X, norms=tuple(norm._replace(gain=norm.gain.copy()) for norm in RMS), cap=1.0, sinks=1.0)
    )
    for other in (
        {"norms": LAYER},
        {"norms": (RMS[0], RMS[1]._replace(gain=GAINS["q"]))},
        {"norms": None},
        {"cap": 2.0},
        {"rotary": np.ones(2)},
    ):
        changed = Run(**vars(one) | other)
        assert not one.same_setting(changed)
        assert not changed.same_setting(one)


def test_what_is_added_to_scores_is_mask_and_bias():
    causal = np.where(np.tri(4, dtype=bool), 0, np.finfo(np.float32).min)
    allowed, bias = runs.mask_and_bias(causal, 3, 4, 4, "layer")
    assert bias is None
    np.testing.assert_array_equal(allowed, np.tile(np.tri(4), (3, 1, 1)))
    padding = np.where([[[[True, True, True, False]]], [[[True, True, False, False]]]], 0, -np.inf)
    added = RNG.normal(size=(1, 2, 4, 4)) + padding
    allowed, bias = runs.mask_and_bias(added, 2, 4, 4, "layer")
    np.testing.assert_array_equal(allowed[1], np.tile([1, 1, 0, 0], (4, 1)))
    np.testing.assert_array_equal(bias[..., :3], added[0, ..., :3])
    assert not bias[..., 3].any()
    with pytest.raises(InputError, match="expected one mask for all heads"):
        runs.mask_and_bias(np.where(RNG.random((1, 2, 4, 4)) < 0.5, 0, -np.inf), 1, 4, 4, "layer")
    with pytest.raises(InputError, match="expected one bias for all sequences"):
        runs.mask_and_bias(RNG.normal(size=(2, 1, 4, 4)), 2, 4, 4, "layer")
