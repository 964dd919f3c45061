"""Figures of a fit's parameters that are matrices, such as an inferred kernel: what is known of every entry."""

from typing import TYPE_CHECKING, Any

import numpy as np

from hierattn.reporting.figures import Panel
from hierattn.reporting.svg import axes, plain, svg

if TYPE_CHECKING:
    from xarray import DataTree

WRITTEN = 8  # tokens up to which numbers stand in the cells


def matrices(tree: "DataTree", table: dict[str, Any], arrays: list[dict[str, Any]]) -> list[Panel]:
    """A figure for every square matrix that the fit inferred: those with entries in its table."""
    inferred = {entry.partition("[")[0] for entry in table if "[" in entry}
    shapes = {line["name"]: line["shape"] for line in arrays if line["name"] in inferred}
    square = [name for name, shape in shapes.items() if len(shape) == 2 and shape[0] == shape[1]]
    return [matrix(name, np.asarray(tree["posterior"][name], float), k) for k, name in enumerate(square)]


def matrix(name: str, draws: np.ndarray, k: int = 0) -> Panel:
    """Posterior mean and standard deviation of every entry, side by side; k: which figure of the page it is."""
    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    number, largest = len(mean), float(np.abs(mean).max()) or 1.0
    with axes(width=6.4, height=3.2) as (figure, _):
        figure.clear()
        left, right = figure.subplots(1, 2)
        _cells(left, mean, "RdBu", (-largest, largest))
        _cells(right, sd, "Greys", (0.0, float(sd.max()) or 1.0))
        left.set(title=f"{plain(name)}: mean, {mean.min():.2f} to {mean.max():.2f}", xlabel="token", ylabel="token")
        right.set(title=f"sd, {sd[sd > 1e-12 * largest].min(initial=sd.max()):.2g} to {sd.max():.2g}", xlabel="token")
        drawn = svg(figure, f"matrix-{k}")
    off = ~np.eye(number, dtype=bool)
    ends = [np.unravel_index(np.where(off, sign * mean, -np.inf).argmax(), mean.shape) for sign in (-1, 1)]
    least, most = (f"{mean[at]:.2f} +- {sd[at]:.2f} (tokens {at[0]} and {at[1]})" for at in ends)
    means = f"Off the diagonal from {least} to {most}."
    alt = f"Cells of the posterior mean and of the posterior standard deviation of {name}, one for every two tokens."
    read = "Left what each entry is, right how well it is known. An entry of less than twice its sd may be zero."
    return Panel(f"matrix-{k}", f"The inferred {name}", alt, read, means, drawn)


def _cells(ax: Any, values: np.ndarray, colours: str, ends: tuple[float, float]) -> None:
    """A cell for every entry, with its number where there is room: light letters on dark cells."""
    number = len(values)
    mesh = ax.pcolormesh(values, cmap=colours, vmin=ends[0], vmax=ends[1], edgecolors="face", linewidth=0.3)
    ax.set_aspect("equal")
    ax.invert_yaxis()
    shown = range(number) if number <= WRITTEN else (0, number - 1)
    ax.set_xticks([i + 0.5 for i in shown], [str(i) for i in shown])
    ax.set_yticks([i + 0.5 for i in shown], [str(i) for i in shown])
    if number > WRITTEN:
        return
    for (i, j), value in np.ndenumerate(values):
        red, green, blue, _ = mesh.cmap(mesh.norm(value))
        colour = "#ffffff" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else "#111111"
        ax.text(j + 0.5, i + 0.5, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
