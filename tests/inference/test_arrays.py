"""Parameters that are arrays: none twice in a table, and one line that tells the range of all entries."""

import numpy as np

from hierattn.inference import verdict
from hierattn.inference.arrays import in_lines, listed, symmetric

RNG = np.random.default_rng(0)
A = RNG.normal(size=(2, 40, 3, 3))
A /= np.linalg.norm(A, axis=-1, keepdims=True)
K = A @ A.swapaxes(-1, -2)
L = np.linalg.cholesky(K)
SCALE = np.exp(RNG.normal(size=(2, 40)))


def test_factors_of_matrices_and_their_lower_halves_are_left_out():
    """Whatever they are called, in float32 too; an array that is no factor stays."""
    drawn = {"chol": L.astype(np.float32), "M": K, "score_scale": SCALE, "other": 1.01 * L}
    assert list(listed(drawn)) == ["score_scale", "M", "other"]
    names = list(verdict.summary(listed(drawn)))
    assert names[:4] == ["score_scale", "M[0,1]", "M[0,2]", "M[1,2]"]
    assert [name for name in names if "other" in name] == [f"other[{i},{j}]" for i in (1, 2) for j in range(i + 1)]
    assert symmetric(K)
    assert not symmetric(L)
    assert not symmetric(SCALE)


def test_a_line_holds_the_ends_of_the_entries_and_the_worst_chains():
    table = verdict.summary({"K": K})
    (line,) = in_lines({"K": K}, table)
    i, j = np.triu_indices(3, 1)
    means, sds = K.mean(axis=(0, 1))[i, j], K.reshape(-1, 3, 3).std(axis=0, ddof=1)[i, j]
    assert (line["name"], line["shape"], line["entries"]) == ("K", [3, 3], 3)
    ends = [line[key] for key in ("mean_least", "mean_most", "sd_least", "sd_most")]
    np.testing.assert_allclose(ends, [means.min(), means.max(), sds.min(), sds.max()], rtol=0.01)  # sds over both chains
    assert line["rhat_most"] == max(row["rhat"] for row in table.values())
    assert line["ess_bulk_least"] == min(row["ess_bulk"] for row in table.values())
    assert in_lines({"fixed": np.ones((2, 40, 3))}, {}) == []
    assert in_lines({"kappa": K}, {})[0]["rhat_most"] is None
