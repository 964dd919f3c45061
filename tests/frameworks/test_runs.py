"""The formula, against plain loops; masks and biases from what is added to scores; layers that do something else."""

import numpy as np
import pytest

from hierattn import InputError, rotary_frequencies
from hierattn.frameworks import runs
from hierattn.frameworks.runs import Linear, Run
from tests.frameworks import drawn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 6))


def by_loops(run):
    """The same outputs, one head, query and key at a time; rotations as complex numbers."""
    y = np.zeros_like(run.y)
    n_H, shared = run.head_dim, run.heads // run.key_value_heads
    for b in range(len(run.X)):
        for a in range(run.heads):
            rows, owners = slice(a * n_H, (a + 1) * n_H), slice(a // shared * n_H, (a // shared + 1) * n_H)
            q, k, v = (
                x @ run.maps[name].W[:, part] + (0 if run.maps[name].b is None else run.maps[name].b[part])
                for name, x, part in (("q", run.X_q[b], rows), ("k", run.X[b], owners), ("v", run.X[b], owners))
            )
            for i in range(len(q)):
                keys = [j for j in range(len(k)) if run.allowed[b, i, j]]
                p = []
                for j in keys:
                    if run.rotary is None:
                        score = q[i] @ k[j]
                    else:
                        half = n_H // 2
                        one, two = q[i, :half] + 1j * q[i, half:], k[j, :half] + 1j * k[j, half:]
                        score = np.sum(one * two.conj() * np.exp(1j * run.rotary * (i - j))).real
                    p.append(run.factor * score + (0 if run.bias is None else run.bias[a, i, j]))
                A = np.exp(p) / np.exp(p).sum()
                y[b, i] += A @ v[keys] @ run.maps["o"].W[rows]
    return y + (0 if run.maps["o"].b is None else run.maps["o"].b)


SETTINGS = {
    "plain": {},
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
    for changes in ({"allowed": np.ones((2, 5, 5), bool)}, {"factor": 0.4}, {"rotary": rotary_frequencies(4)}):
        with pytest.raises(InputError, match=r"layer: expected outputs that its weights, mask and .* explain, got .*by hand"):
            runs.check(Run(**vars(run) | changes), "layer")
    with pytest.raises(InputError, match=r"expected numbers in float32 or float64, got float16; use model.float"):
        runs.check(Run(**vars(run) | {"y": run.y.astype(np.float16)}), "layer")
    empty = run.allowed.copy()
    empty[1, 2] = False
    with pytest.raises(InputError, match=r"at least one key for every query, got none for \(sequence, token\) \[1, 2\]"):
        runs.check(Run(**vars(run) | {"allowed": empty}), "layer")
    maps = run.maps | {"o": Linear(run.maps["o"].W[:-1])}
    with pytest.raises(InputError, match="expected maps of 2 heads"):
        runs.check(Run(**vars(run) | {"maps": maps}), "layer")


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
