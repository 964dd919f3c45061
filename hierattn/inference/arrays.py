"""Parameters that are arrays: which of them say something of their own, and one line about all entries of each."""

from collections.abc import Callable
from typing import Any

import numpy as np

ROUNDING = 1e-6  # of the largest entry; draws of an array may be in float32


def symmetric(x: np.ndarray) -> bool:
    """Are draws (chain, draw, ..., t, t) symmetric matrices?"""
    return x.ndim >= 4 and x.shape[-1] == x.shape[-2] and bool(_same(x, x.swapaxes(-1, -2)))


def listed(draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters, scalars first, without those that are the factor L of another, L L'."""
    matrices = [x for x in draws.values() if symmetric(x)]
    kept = {name: x for name, x in draws.items() if not any(_is_factor(x, K) for K in matrices)}
    return dict(sorted(kept.items(), key=lambda each: each[1].ndim > 2))


def _is_factor(L: np.ndarray, K: np.ndarray) -> bool:
    return L is not K and L.ndim >= 4 and L.shape[:-1] == K.shape[:-1] and bool(_same(L @ L.swapaxes(-1, -2), K))


def _same(x: np.ndarray, y: np.ndarray) -> Any:
    return np.all(np.abs(x - y) <= ROUNDING * np.abs(y).max())


def in_lines(arrays: dict[str, np.ndarray], table: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every array a line: its shape, how many entries vary, the ranges of their means and sds, and where chains are worst.

    - arrays: name -> draws (chain, draw, ...)
    - table: entries `name[i,j]` with what is known of their chains: rhat, ess_bulk, ess_tail; of some arrays nothing
    """
    found = []
    for name, x in arrays.items():
        mean, sd = x.mean(axis=(0, 1)), x.std(axis=(0, 1), ddof=1)
        varying = sd > 1e-12 * np.abs(x).max()
        entries = np.triu(varying) if symmetric(x) else varying
        if not entries.any():
            continue
        line: dict[str, Any] = {"name": name, "shape": list(x.shape[2:]), "entries": int(entries.sum())}
        for key, value in (("mean", mean), ("sd", sd)):
            line |= {f"{key}_least": float(value[entries].min()), f"{key}_most": float(value[entries].max())}
        rows = [row for entry, row in table.items() if entry.partition("[")[0] == name]
        line["rhat_most"] = _extreme(max, rows, "rhat")
        found.append(line | {f"{key}_least": _extreme(min, rows, key) for key in ("ess_bulk", "ess_tail")})
    return found


def _extreme(worst: Callable, rows: list[dict[str, Any]], key: str) -> float | None:
    """The worst of a column, None where one is not known."""
    values = [row[key] for row in rows]
    return None if not values or None in values else float(worst(values))
