"""Pictures of a sweep, from its results alone: lines with errors along one option, one for each value of a second; or a map."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from hierattn.base.errors import unusable
from hierattn.reporting.svg import GAUSSIAN, LAW, OTHER, SEEN, STYLE

MOST_LINES = 6  # of a second option, from which a map shows more
COLOURS = (LAW, SEEN, OTHER, GAUSSIAN, "#8e5ba6", "#c98a1b")


def quantities(results: Any) -> list[str]:
    """What a picture can show: numbers of the function that are no errors."""
    return [str(name) for name in results if name not in ("message", "seconds") and not str(name).endswith("_error")]


def picture(results: Any, quantity: str | None = None, at: dict[str, Any] | None = None) -> Figure:
    """One quantity over the one or two options that have several values.

    - at: values of the other dims; of dims of the quantity itself (a layer, say) places, -1 being the last, as usual
    """
    name = quantity or quantities(results)[0]
    if name not in quantities(results):
        raise unusable("quantity", f"one of {', '.join(quantities(results))}", repr(name))
    shown, error = _chosen(results, name, at or {})
    free = [str(dim) for dim in shown.dims]
    if not 1 <= len(free) <= 2:
        expected = f"one or two options that vary, of {', '.join(free) or 'none'}"
        raise unusable("at", expected, len(free), "say where the others are, as in --at heads=4")
    with mpl.rc_context(STYLE | {"figure.facecolor": "white", "savefig.facecolor": "white"}):
        figure = Figure((7.2, 4.6))
        ax = figure.subplots()
        shown = shown.transpose(*sorted(free, key=lambda dim: -shown.sizes[dim]))
        if len(free) == 2 and min(shown.shape) > MOST_LINES:
            _map(figure, ax, shown, name)
        else:
            _lines(ax, shown, error, name)
        ax.set_title(_title(results, name, at or {}))
    return figure


def _chosen(results: Any, name: str, at: dict[str, Any]) -> tuple[Any, Any]:
    """The numbers of a quantity and their errors, without dims that have one value or a place."""
    unknown = [dim for dim in at if dim not in results[name].dims]
    if unknown:
        raise unusable("at", f"dims of {name}: {', '.join(map(str, results[name].dims))}", unknown[0])

    def of(variable: Any) -> Any:
        for dim in variable.dims:
            if dim in results.coords:
                variable = _by_value(variable, str(dim), at)
            else:
                variable = variable.isel({dim: int(at.get(dim, -1))})
        return variable

    return of(results[name]), of(results[f"{name}_error"]) if f"{name}_error" in results else None


def _by_value(variable: Any, dim: str, at: dict[str, Any]) -> Any:
    values = variable[dim].values
    if dim not in at:
        return variable if len(values) > 1 else variable.isel({dim: 0})
    near = [k for k, x in enumerate(values) if str(x) == str(at[dim]) or _number(x) == _number(at[dim])]
    if not near:
        raise unusable(f"at {dim}", f"one of {', '.join(map(str, values))}", at[dim])
    return variable.isel({dim: near[0]})


def _number(x: Any) -> float | None:
    try:
        return float(x)
    except ValueError:
        return None


def _places(values: np.ndarray) -> tuple[np.ndarray, bool]:
    """Where values stand on an axis, and whether these are numbers."""
    numbers = values.dtype.kind in "iuf"
    return (values.astype(float) if numbers else np.arange(len(values), dtype=float)), numbers


def _logarithmic(x: np.ndarray) -> bool:
    """Do positive values multiply rather than add?"""
    return (
        len(x) > 2
        and x.min() > 0
        and bool(np.ptp(np.diff(np.log(x))) < np.ptp(np.diff(x)) / np.mean(x))
        and x.max() > 5 * x.min()
    )


def _axis(ax: Any, side: str, dim: str, values: np.ndarray) -> np.ndarray:
    """Labels of an axis, and where its values stand."""
    x, numbers = _places(values)
    getattr(ax, f"set_{side}label")(dim.replace("_", " "))
    if not numbers:
        getattr(ax, f"set_{side}ticks")(x, [str(value) for value in values])
    elif _logarithmic(x):
        getattr(ax, f"set_{side}scale")("log")
        if len(x) <= 10:
            getattr(ax, f"set_{side}ticks")(x, [f"{value:g}" for value in x])
            getattr(ax, f"{side}axis").minorticks_off()
    return x


def _lines(ax: Any, shown: Any, error: Any, name: str) -> None:
    dim, *others = map(str, shown.dims)
    x = _axis(ax, "x", dim, shown[dim].values)
    rows = (
        [(None, shown, error)]
        if not others
        else [
            (value, shown.isel({others[0]: k}), None if error is None else error.isel({others[0]: k}))
            for k, value in enumerate(shown[others[0]].values)
        ]
    )
    for (value, row, row_error), colour in zip(rows, COLOURS, strict=False):
        label = None if value is None else f"{others[0].replace('_', ' ')} {value}"
        ax.errorbar(x, row.values, None if row_error is None else row_error.values, fmt="o-", ms=3.5, color=colour, label=label)
    ax.set_ylabel(name.replace("_", " "))
    if others:
        ax.legend()


def _map(figure: Figure, ax: Any, shown: Any, name: str) -> None:
    down, along = map(str, shown.dims)
    x, y = _axis(ax, "x", along, shown[along].values), _axis(ax, "y", down, shown[down].values)
    drawn = ax.pcolormesh(_edges(x, ax.get_xscale()), _edges(y, ax.get_yscale()), shown.values, rasterized=True)
    figure.colorbar(drawn, ax=ax, label=name.replace("_", " "))


def _edges(x: np.ndarray, scale: str) -> np.ndarray:
    """Between values, half way as the axis has it, and as far beyond the first and the last."""
    at = np.log(x) if scale == "log" else x
    middle = (at[1:] + at[:-1]) / 2
    edges = np.concatenate([[2 * at[0] - middle[0]], middle, [2 * at[-1] - middle[-1]]])
    return np.exp(edges) if scale == "log" else edges


def _title(results: Any, name: str, at: dict[str, Any]) -> str:
    """Values of what does not vary."""
    fixed = {dim: results[dim].values[0] for dim in results[name].dims if dim in results.coords and results.sizes[dim] == 1}
    fixed |= at | {dim: at.get(str(dim), "last") for dim in results[name].dims if dim not in results.coords}
    return ", ".join(f"{dim} {value}" for dim, value in fixed.items())
