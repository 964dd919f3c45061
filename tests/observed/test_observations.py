"""Observations: every number by a second route, every unusable array its one-line error."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from hierattn import Architecture, InputError, Observations, UnsafeInputError, kernels
from hierattn.base import provenance
from hierattn.base.files import stored
from hierattn.observed import kernels as observed_kernel
from hierattn.observed import observations, statistics

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(7, 3, 5))
X = RNG.normal(size=(7, 3, 4)).astype(np.float32)
K = kernels.rbf(3, 1.0)


def gram(x):
    """x x' / n, number by number."""
    return np.array([[sum(float(a) * float(b) for a, b in zip(i, j, strict=True)) / len(i) for j in x] for i in x])


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, ">f4", np.int32])
@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_sufficient_statistics(monkeypatch, kind, at_once):
    y = (10 * Y).astype(kind)
    monkeypatch.setattr(stored, "BLOCK", at_once * y[0].nbytes)
    found = Observations(y)
    exact = y.astype(np.float64)
    np.testing.assert_allclose(found.S, np.einsum("mic,mjc->mij", exact, exact), rtol=1e-13)
    np.testing.assert_array_equal(found.S, found.S.swapaxes(1, 2))
    assert found.S.dtype == np.float64
    assert (found.networks, found.s, found.coordinates, found.source, found.complete) == (7, 3, 5, "array", True)
    assert found.scale == pytest.approx(np.sqrt(np.mean(exact**2)), rel=1e-13)
    np.testing.assert_allclose(found.token_scales, np.sqrt(np.mean(exact**2, axis=(0, 2))), rtol=1e-13)
    np.testing.assert_array_equal(found.outputs, y)
    assert found.outputs.dtype == (np.float32 if np.dtype(kind).itemsize == 4 and np.dtype(kind).kind == "f" else np.float64)
    assert found.sha256 == provenance.digest(y.astype(y.dtype.newbyteorder("=")))


def test_arrays_of_other_libraries():
    """JAX arrays, half precision among them, and xarray's."""
    for y in (
        jnp.asarray(Y, jnp.float32),
        jnp.asarray(Y, jnp.bfloat16),
        xarray.DataArray(Y, dims=observations.DIMS),
        Y.tolist(),
    ):
        found = Observations(y)
        exact = np.asarray(y, np.float64)
        np.testing.assert_allclose(found.S, np.einsum("mic,mjc->mij", exact, exact), rtol=1e-12)
        np.testing.assert_array_equal(found.outputs, exact)


def test_raw_outputs_are_cut_to_leading_coordinates(monkeypatch):
    monkeypatch.setattr(statistics, "KEPT", Y.nbytes * 2 // 5 + 1)
    found = Observations(Y)
    assert not found.complete
    np.testing.assert_array_equal(found.outputs, Y[:, :, :2])
    assert (found.coordinates, found.sha256) == (5, Observations(Y).sha256)
    np.testing.assert_array_equal(found.S, Observations(Y).S)
    monkeypatch.setattr(statistics, "KEPT", 1)
    assert Observations(Y).outputs.shape == (7, 3, 1)


def test_where_the_kernel_is_from():
    assert (Observations(Y).kernel, Observations(Y).kernel_origin) == (None, "inferred")
    assert (Observations(Y, "inferred").kernel, Observations(Y, "inferred").kernel_origin) == (None, "inferred")
    given = Observations(Y, kernel=K)
    np.testing.assert_array_equal(given.kernel, K)
    assert (given.kernel_origin, given.tokens.tolist()) == ("given", [0, 1, 2])
    identity = Observations(Y, kernel="identity")
    np.testing.assert_array_equal(identity.kernel, np.eye(3))
    assert identity.kernel_origin == "identity"
    each = Observations(Y, inputs=X)
    np.testing.assert_allclose(each.kernel, [gram(x) for x in X], rtol=1e-14)
    assert (each.kernel_origin, each.kernel.dtype) == ("inputs", np.float64)
    np.testing.assert_allclose(Observations(Y, inputs=X[0]).kernel, gram(X[0]), rtol=1e-14)
    several = Observations(Y, kernel=each.kernel)
    np.testing.assert_array_equal(several.kernel, each.kernel)


def test_kernels_come_block_by_block_too(monkeypatch):
    whole = Observations(Y, inputs=X).kernel
    monkeypatch.setattr(stored, "BLOCK", 2 * X[0].nbytes)
    np.testing.assert_array_equal(Observations(Y, inputs=X).kernel, whole)
    np.testing.assert_array_equal(Observations(Y, kernel=whole).kernel, whole)
    np.testing.assert_array_equal(Observations(Y, kernel=K).kernel, K)


def test_a_kernel_of_low_precision_stays_a_kernel():
    """Its rounding makes eigenvalues negative that are zero: in float64 it must pass the check, with its rank."""
    x = RNG.normal(size=(3, 2)).astype(np.float32)
    rounded = x @ x.T
    found = Observations(Y, kernel=rounded).kernel
    kernels.check(found)
    assert found.dtype == np.float64
    assert kernels.factor(found).shape == (3, 2)
    np.testing.assert_allclose(found, rounded, rtol=1e-6)
    np.testing.assert_array_equal(Observations(Y, kernel=np.eye(3, dtype=int)).kernel, np.eye(3))


def test_tokens_heads_and_mask():
    mask = np.tri(4, dtype=bool)
    found = Observations(Y, kernel=np.eye(4), tokens=[3, 0, 2], heads=2, mask=mask)
    assert (found.tokens.tolist(), found.heads) == ([3, 0, 2], 2)
    np.testing.assert_array_equal(found.mask, mask)
    assert Observations(Y, kernel="identity:4", tokens=(0, 1, 2)).kernel.shape == (4, 4)
    assert Observations(Y, mask="causal").mask == "causal"
    numbers = Observations(Y, mask=np.tri(3, dtype=int)).mask
    assert numbers.dtype == bool
    one = Observations(Y[:, :1], kernel="identity:4", tokens=[0])
    assert (one.s, one.kernel.shape) == (1, (4, 4))


def test_the_first_networks():
    found = Observations(Y, inputs=X, heads=2, mask="causal")
    for first, sha256 in (
        (found.first(4), found.sha256),
        (Observations(Y, inputs=X, heads=2, mask="causal", networks=4), provenance.digest(Y[:4])),
    ):
        other = Observations(Y[:4], inputs=X[:4], heads=2, mask="causal")
        for name in ("S", "outputs", "kernel", "tokens"):
            np.testing.assert_array_equal(getattr(first, name), getattr(other, name))
        assert (first.networks, first.scale, first.heads, first.mask) == (4, other.scale, 2, "causal")
        assert first.sha256 == sha256
    assert Observations(Y, kernel=K).first(2).kernel.shape == (3, 3)
    for wrong in (0, 8, 2.0, True):
        with pytest.raises(InputError, match="networks: expected a whole number from 1 to 7, got"):
            found.first(wrong)
        with pytest.raises(InputError, match=r"networks: expected a whole number from 1 to 7, got .*; outputs has 7"):
            Observations(Y, networks=wrong)
    silent = Observations(np.concatenate([np.zeros((2, 3, 5)), Y]))
    with pytest.raises(InputError, match="expected outputs that vary, got zeros only in the first 2 networks"):
        silent.first(2)


def test_statistics_that_are_there_already():
    """Captures, cuts and fits: the same observations, checked alike."""
    whole = Observations(Y, K, heads=2, mask="causal")
    found = Observations.from_statistics(whole.statistics, K, heads=2, mask="causal", source="x")
    for name in ("S", "outputs", "kernel", "tokens"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    assert (found.sha256, found.mask, found.source, found.kernel_origin) == (whole.sha256, "causal", "x", "given")
    assert Observations.from_statistics(whole.statistics).kernel_origin == "inferred"

    class Mine(Observations):
        pass

    assert type(Mine.from_statistics(whole.statistics)) is Mine
    cut = whole.statistics._replace(outputs=Y[:, :, :2])
    assert not Observations.from_statistics(cut).complete


@pytest.mark.parametrize(
    ("changes", "more", "words"),
    [
        ({"S": np.ones((6, 3, 3))}, {}, "statistics: expected S (network, token, token) beside outputs"),
        ({"S": np.ones((7, 3, 2))}, {}, "statistics: expected S (network, token, token) beside outputs"),
        ({"coordinates": 4}, {}, "statistics: expected S (network, token, token) beside outputs"),
        ({"S": np.full((7, 3, 3), np.nan)}, {}, "statistics: expected finite numbers"),
        ({"S": np.tile(np.tri(3), (7, 1, 1))}, {}, "statistics: expected S = Y Y', which is symmetric"),
        ({"S": np.zeros((7, 3, 3))}, {}, "statistics: expected outputs that vary, got zeros only in 7 networks"),
        ({}, {"kernel": np.eye(4)}, "outputs: expected shape (network, 4 tokens as in the kernel, coordinate)"),
        ({}, {"kernel": np.tri(3)}, "kernel: expected a symmetric matrix"),
        ({}, {"heads": 0}, "heads: expected a positive whole number"),
        ({}, {"mask": np.ones((4, 4), bool)}, "mask: expected shape (3, 3) (queries, keys), got (4, 4)"),
    ],
)
def test_statistics_that_cannot_be(changes, more, words):
    with pytest.raises(InputError) as raised:
        Observations.from_statistics(Observations(Y).statistics._replace(**changes), **more)
    assert words in str(raised.value)


def test_layer_heads_and_mask_agree():
    causal, eye = Architecture(heads=2, mask="causal"), np.eye(3, dtype=bool)
    found = Observations(Y, layer=causal)
    assert (found.heads, found.mask, found.layer is causal) == (2, "causal", True)
    assert Observations(Y, mask=np.tri(3, dtype=bool), layer=causal).mask.shape == (3, 3)
    off = Observations(Y, mask="none", layer=causal)
    assert (off.mask, off.layer.mask) == (None, None)
    assert Observations(Y, mask="causal", layer=Architecture()).layer.mask == "causal"
    assert found.first(2).layer is causal
    for mask, layer in ((eye, causal), ("causal", Architecture(mask=eye)), (np.ones((3, 3), bool), causal)):
        with pytest.raises(InputError, match="mask: expected that of the layer, got another; leave it out, or take it off"):
            Observations(Y, mask=mask, layer=layer)
    with pytest.raises(InputError, match=r"mask: expected shape \(3, 3\)"):
        Observations(Y, layer=Architecture(mask=np.eye(4, dtype=bool)))
    with pytest.raises(InputError, match=r"bias: expected shape \(..., 3, 3\), as the kernel has tokens, got \(4, 4\)"):
        Observations(Y, layer=Architecture(bias=np.zeros((4, 4))))


def spoiled(*places):
    y = Y.copy()
    for place, value in places:
        y[place] = value
    return y


WRONG = {
    "rank": (Y[0], {}, "outputs: expected shape (network, token, coordinate), got (3, 5)"),
    "words": (np.full((2, 2, 2), "a"), {}, "outputs: expected real numbers, got text"),
    "complex": (Y + 1j, {}, "outputs: expected real numbers, got complex128"),
    "truth": (Y > 0, {}, "outputs: expected real numbers, got bool"),
    "objects": (Y.astype(object), {}, "outputs: expected real numbers, got Python objects"),
    "ragged": ([[1], [1, 2]], {}, "outputs: expected an array of numbers, got list"),
    "no networks": (Y[:0], {}, "outputs: expected at least one network, token and coordinate, got shape (0, 3, 5)"),
    "no tokens": (Y[:, :0], {}, "expected at least one network, token and coordinate, got shape (7, 0, 5)"),
    "constant": (np.full((4, 3, 2), 0.5), {}, "outputs: expected outputs that vary, got one value, 0.5"),
    "one number": (np.ones((1, 1, 1)), {}, "outputs: expected outputs that vary, got one value, 1"),
    "huge": (-1e200 * np.abs(Y), {}, "outputs: expected outputs between 1e-100 and 1e+100 in size, got "),
    "tiny": (1e-200 * Y, {}, "in size, got "),
    "last axis": (
        Y,
        {"kernel": np.eye(5)},
        "(network, 5 tokens as in the kernel, coordinate), got (7, 3, 5); axes swapped? "
        "its last axis has 5: use numpy.swapaxes(outputs, 1, 2)",
    ),
    "first axis": (Y, {"kernel": np.eye(7)}, "axes swapped? its first axis has 7: use numpy.swapaxes(outputs, 1, 0)"),
    "size": (Y, {"kernel": np.eye(4)}, "got (7, 3, 5); say with tokens which of the kernel's they are"),
    "identity size": (Y, {"kernel": "identity:4"}, "(network, 4 tokens as in the kernel, coordinate), got (7, 3, 5)"),
    "inputs size": (Y, {"inputs": np.ones((4, 9))}, "expected shape (network, 4 tokens as in the kernel, coordinate)"),
    "word": (
        Y,
        {"kernel": "indentity"},
        "kernel: expected an array, 'identity', 'identity:TOKENS' or 'inferred', got 'indentity'",
    ),
    "word size": (Y, {"kernel": "identity:x"}, "kernel: expected an array, 'identity', 'identity:TOKENS' or 'inferred', got"),
    "both": (Y, {"kernel": K, "inputs": X}, "kernel: expected either a kernel or inputs, got both; leave one out"),
    "kernel shape": (
        Y,
        {"kernel": np.ones((3, 4))},
        "kernel: expected shape (token, token) or (network, token, token), got (3, 4)",
    ),
    "kernel networks": (
        Y,
        {"kernel": np.ones((6, 3, 3))},
        "kernel: expected 7 networks, as the outputs have, or no network axis",
    ),
    "kernel psd": (Y, {"kernel": np.diag([1, 1, -1.0])}, "kernel: expected a positive semidefinite matrix, got eigenvalue -1"),
    "kernel asymmetric": (Y, {"kernel": np.tri(3)}, "kernel: expected a symmetric matrix, got entries that differ by 1"),
    "kernel nan": (
        Y,
        {"kernel": np.full((3, 3), np.nan)},
        "kernel: expected finite numbers, got 9 NaN and 0 infinite, the first at (0, 0)",
    ),
    "kernel complex": (Y, {"kernel": 1j * K}, "kernel: expected real numbers, got complex128"),
    "inputs shape": (Y, {"inputs": np.ones(3)}, "inputs: expected shape (network, token, width) or (token, width), got (3,)"),
    "inputs networks": (
        Y,
        {"inputs": X[:6]},
        "inputs: expected 7 networks, as the outputs have, or no network axis, got (6, 3, 4)",
    ),
    "inputs nan": (
        Y,
        {"inputs": X * np.nan},
        "inputs: expected finite numbers, got 84 NaN and 0 infinite, the first at (0, 0, 0)",
    ),
    "tokens alone": (
        Y,
        {"tokens": [0, 1, 2]},
        "tokens: expected a kernel whose tokens they are, got none; give it, or 'identity:TOKENS'",
    ),
    "tokens identity": (Y, {"tokens": [0, 1, 2], "kernel": "identity"}, "tokens: expected a kernel whose tokens they are"),
    "tokens count": (
        Y,
        {"tokens": [0], "kernel": K},
        "tokens: expected 3 whole numbers, one for each token of the outputs, got int64 of shape (1,)",
    ),
    "tokens kind": (Y, {"tokens": [0, 1, 2.5], "kernel": K}, "tokens: expected 3 whole numbers"),
    "tokens range": (
        Y,
        {"tokens": [0, 1, 4], "kernel": np.eye(4)},
        "tokens: expected different numbers from 0 to 3, the kernel's tokens, got [0, 1, 4]",
    ),
    "tokens twice": (Y, {"tokens": [0, 1, 1], "kernel": np.eye(4)}, "tokens: expected different numbers from 0 to 3"),
    "tokens negative": (Y, {"tokens": [0, 1, -1], "kernel": np.eye(4)}, "tokens: expected different numbers from 0 to 3"),
    "heads": (Y, {"heads": 0}, "heads: expected a positive whole number, got 0"),
    "heads kind": (Y, {"heads": 2.0}, "heads: expected a positive whole number, got 2.0"),
    "heads each": (Y, {"heads": [1, 2]}, "heads: expected a positive whole number, got [1, 2]"),
    "mask word": (Y, {"mask": "casual"}, "mask: expected one of causal, got 'casual'"),
    "mask size": (Y, {"mask": np.tri(4, dtype=bool)}, "mask: expected shape (3, 3) (queries, keys), got (4, 4)"),
    "mask kind": (Y, {"mask": np.full((3, 3), 2.0)}, "mask: expected None, 'causal' or a boolean (queries, keys) array"),
    "mask row": (
        Y,
        {"mask": np.zeros((3, 3), bool)},
        "mask: expected at least one allowed key for every query, got none for query 0",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_used(case):
    outputs, more, words = WRONG[case]
    with pytest.raises(InputError) as raised:
        Observations(outputs, **more)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert type(raised.value) is InputError


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_all_that_is_not_finite_is_counted(monkeypatch, at_once):
    monkeypatch.setattr(stored, "BLOCK", at_once * Y[0].nbytes)
    y = spoiled(((2, 1, 3), np.nan), ((6, 0, 0), -np.inf), ((5, 0, 1), np.nan))
    with pytest.raises(InputError, match=r"got 2 NaN and 1 infinite, the first at \(2, 1, 3\)"):
        Observations(y)
    with pytest.raises(InputError, match=r"got 1 NaN and 0 infinite, the first at \(2, 1, 3\)"):
        Observations(y, networks=4)
    assert Observations(y, networks=2).networks == 2


def test_what_is_too_large_even_when_reduced(monkeypatch):
    monkeypatch.setattr(observed_kernel, "LARGEST", 8 * 9 * 4)
    with pytest.raises(
        UnsafeInputError, match=r"outputs: expected at most 4 networks of 3 tokens, got 7; take the first 4 \(networks=4"
    ):
        Observations(Y)
    with pytest.raises(UnsafeInputError, match="inputs: expected at most 4 networks of 3 tokens, got 7"):
        Observations(Y, inputs=X)
    assert Observations(Y, inputs=X, networks=4).networks == 4
