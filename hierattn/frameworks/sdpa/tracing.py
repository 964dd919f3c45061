"""Where columns of an array come from: exact equality of numbers says it, since moving numbers about does not change them.

Columns are those of arrays (batch, token, column): a coordinate of a head at all tokens of all sequences. Rotary embeddings
change all but the first token, which they turn by nothing: columns are found there, and then the angles, which must be
proportional to the position.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from hierattn.frameworks.runs import Norm, turned
from hierattn.frameworks.sdpa.listening import Heard, Map
from hierattn.frameworks.torch_norms import norm_of

SAME = 1e-4  # of coordinates that were turned, relative to the largest: single precision of cos and sin


class Stage(NamedTuple):
    """Numbers that queries or keys may be made of: outputs of a linear map, or of a norm of them.

    - columns: of the map's outputs, one for each of these
    """

    values: Float[np.ndarray, "batch s c"]
    map: Map
    columns: Int[np.ndarray, " c"]
    norm: Norm | None


class Source(NamedTuple):
    """Where queries, keys or values are from: columns of a map's outputs for every head and coordinate, and what was done.

    - norm: of the coordinates of a head, or of all heads, in the order of the columns
    - rotary: frequencies; columns are then in the order of `runs.turned`
    """

    map: Map
    columns: Int[np.ndarray, "heads n_H"]
    norm: Norm | None = None
    rotary: Float[np.ndarray, " B"] | None = None


def columns_of(x: np.ndarray, batch: int, s: int) -> list[np.ndarray]:
    """An array as (batch, token, column), in all ways in which it may be meant: tokens come before heads, or after them."""
    found = []
    if x.shape[:2] == (batch, s) or x.shape[0] == batch * s or (batch == 1 and x.shape[0] == s):
        found.append(x.reshape(batch, s, -1))
    if x.ndim == 4 and (x.shape[0], x.shape[2]) == (batch, s):
        found.append(np.moveaxis(x, 1, 2).reshape(batch, s, -1))
    return found


def match(target: Float[np.ndarray, "batch s c"], values: Float[np.ndarray, "batch s d"]) -> Int[np.ndarray, " c"] | None:
    """For every column of the target the same one among these values; None if one is not there, or two are equal."""
    if target.shape[:2] != values.shape[:2]:
        return None
    places = {column: i for i, column in enumerate(_bytes(values))}
    if len(places) < values.shape[2]:
        return None
    found = [places.get(column) for column in _bytes(target)]
    return None if None in found else np.array(found, int)


def source(x: Float[np.ndarray, "batch heads s n_H"], heard: Heard) -> Source | None:
    """Where an argument of scaled_dot_product_attention is from; None if from something else than maps, norms and turns."""
    batch, heads, s, n_H = x.shape
    target = np.moveaxis(x, 1, 2).reshape(batch, s, -1)
    stages = list(_stages(heard, batch, s))
    for stage in stages:
        places = match(target, stage.values)
        if places is not None:
            return _source(stage, places.reshape(heads, n_H), np.arange(n_H), None)
    for stage in stages:
        places = match(target[:, :1], stage.values[:, :1])
        if places is not None:
            before = np.moveaxis(stage.values[..., places].reshape(batch, s, heads, n_H), 1, 2)
            turns = angles(before.astype(float), x.astype(float))
            if turns is not None:
                return _source(stage, places.reshape(heads, n_H), turns[1], turns[0])
    return None


def angles(before: np.ndarray, after: np.ndarray) -> tuple[Float[np.ndarray, " B"], Int[np.ndarray, " n_H"]] | None:
    """Frequencies by which head coordinates were turned, and the order of coordinates in which pairs are B apart.

    Coordinates that were turned come first; pairs of them are side by side, or half of them apart.
    """
    s, n_H = before.shape[-2:]
    if s < 2:
        return None
    moved = np.flatnonzero((before != after).any(axis=tuple(range(before.ndim - 1))))
    size = np.abs(before).max()
    for turned_ones in range(2 * (moved[-1] // 2 + 1), n_H + 1, 2) if len(moved) else ():
        every = np.arange(turned_ones)
        for first, second in ((every[: turned_ones // 2], every[turned_ones // 2 :]), (every[::2], every[1::2])):
            order = np.concatenate([first, second, np.arange(turned_ones, n_H)])
            x, t = (a[..., 1, first] + 1j * a[..., 1, second] for a in (before, after))
            frequencies = np.angle((t * x.conj()).reshape(-1, len(first)).sum(axis=0))
            if np.abs(turned(before[..., order], frequencies) - after[..., order]).max() <= SAME * size:
                return frequencies, order
    return None


def _stages(heard: Heard, batch: int, s: int) -> list[Stage]:
    """Outputs of maps first, then of norms of them."""
    plain = [Stage(y, call, np.arange(y.shape[2]), None) for call in heard.maps for y in columns_of(call.y, batch, s)]
    normed = []
    for part in heard.parts:
        views = zip(columns_of(part.x, batch, s), columns_of(part.y, batch, s), strict=True)
        norm = norm_of(part.module, part.x, part.y)
        for x, y in views if norm is not None else ():
            for stage in plain:
                places = match(x, stage.values)
                if places is not None:
                    normed.append(Stage(y, stage.map, places, norm))
    return plain + normed


def _source(stage: Stage, places: np.ndarray, order: np.ndarray, rotary: np.ndarray | None) -> Source | None:
    """Places among the stage's columns as columns of its map, heads that share theirs once."""
    places = places[:, order]
    shared = _once(places)
    columns, norm = stage.columns[places], stage.norm
    if norm is not None:
        size, n_H = len(norm.gain), places.shape[1]
        gain = norm.gain[shared % size]
        if size == n_H:  # over one head: the norm must not have mixed several
            if np.ptp(shared // size, axis=1).any() or np.ptp(gain, axis=0).any():
                return None
            gain = gain[0]
        norm = norm._replace(gain=gain.ravel())
    return Source(stage.map, columns, norm, rotary)


def _once(rows: np.ndarray) -> np.ndarray:
    """Rows, those that are the same as the one before left out."""
    return rows[np.r_[True, (rows[1:] != rows[:-1]).any(axis=1)]]


def _bytes(values: np.ndarray) -> list[bytes]:
    """Every column as bytes; zero has one sign."""
    columns = np.ascontiguousarray(values.reshape(-1, values.shape[2]).T) + 0.0
    return [column.tobytes() for column in columns]
