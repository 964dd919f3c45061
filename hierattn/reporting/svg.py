"""Figures as inline SVG: one look, legible on light and dark paper, no ids in common.

Lines and letters are drawn in the page's own colour (`currentColor`), and text stays text.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

LONGEST = 44  # letters of a label
INK = "#010203"  # stands for the page's colour
LAW, SEEN, GAUSSIAN, OTHER = "#3b82c4", "#d1495b", "#8a8a8a", "#5b8e3e"  # 3 : 1 or more on white and on the dark page
STYLE: Any = {
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.titlesize": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "figure.constrained_layout.use": True,
}


@contextmanager
def axes(width: float = 5.2, height: float = 3.1) -> Iterator[tuple[Figure, Axes]]:
    """An empty figure in the page's look; no window, no state that stays."""
    with mpl.rc_context(STYLE):
        figure = Figure((width, height))
        yield figure, figure.subplots()


def beneath(figure: Figure, columns: int = 2) -> None:
    """The legend beneath the figure, where it covers nothing."""
    figure.legend(loc="outside lower center", ncols=columns)


def svg(figure: Figure, name: str) -> str:
    """The figure as an SVG element, its ids beginning with a name; who describes it says so with aria-labelledby."""
    out = io.StringIO()
    with mpl.rc_context(STYLE | {"svg.hashsalt": name}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    text = re.sub(r"font: [^;\"]*?([\d.]+)px [^;\"]*", r"font-size: \1px; font-family: inherit", text)
    text = re.sub(r' width="[\d.]+pt"| height="[\d.]+pt"', "", text, count=2)
    text = text.replace(INK, "currentColor").replace("#000000", "currentColor")
    text = text.replace("<svg ", f'<svg role="img" aria-labelledby="{name}-alt" ', 1)
    return "\n".join(line.rstrip() for line in text.splitlines())


def plain(text: str) -> str:
    """A user's words in a figure: no mathematics in them, and not too many."""
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "\u2026"
    return text.replace("\\", "\\\\").replace("$", "\\$")
