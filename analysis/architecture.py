"""Draw docs/architecture.svg from the import graph: folders in their order, their files, and who imports whom.

    python analysis/architecture.py

An arrow leads from a folder to one that its files import, with the number of imports. Arrows that follow from others, because a
imports b and b imports c, are left out.
"""

import ast
import sys
import textwrap
from collections import Counter
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.graph import files, graph  # noqa: E402
from tests.test_structure import FOLDERS, folder_of  # noqa: E402

OUT = ROOT / "docs" / "architecture.svg"
WIDTH, MARGIN, GAP, LINE, PADDING = 1120, 24, 26, 17, 12
LANE, RADIUS, CHARACTERS = 26, 9, 116
FONT = "font-family='Helvetica, Arial, sans-serif'"
BOX, EDGE, INK, QUIET = "#f3f6fa", "#8fa3b8", "#1b2a3a", "#5a6b7c"
ARROW, FILL = "#2e6f9e", f"fill='{BOX}' stroke='{EDGE}'"


def imports() -> Counter[tuple[str, str]]:
    """(Folder, a folder before it that it imports) -> how often."""
    order = {folder: rank for rank, folder in enumerate(FOLDERS)}
    found: Counter[tuple[str, str]] = Counter()
    for module, others in graph(ROOT).items():
        for other in others:
            pair = folder_of(module), folder_of(other)
            if module.startswith("hierattn.") and other.startswith("hierattn.") and order[pair[0]] > order[pair[1]]:
                found[pair] += 1
    return found


def reduced(pairs: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs that do not follow from others, in the order of folders."""

    def reach(start: str) -> set[str]:
        nearest = {b for a, b in pairs if a == start}
        return nearest.union(*(reach(b) for b in nearest))

    kept = [(a, b) for a, b in pairs if not any(b in reach(c) for x, c in pairs if x == a and c != b)]
    return sorted(kept, key=lambda pair: (FOLDERS.index(pair[0]), FOLDERS.index(pair[1])))


def contents(folder: str) -> tuple[str, list[str]]:
    """What a folder is for, and its files, those of folders inside it after their name."""
    package = f"hierattn.{folder}"
    found = {module: path for module, path in files(ROOT).items() if f"{module}.".startswith(f"{package}.")}
    sentence = (ast.get_docstring(ast.parse(found[package].read_text())) or "").splitlines()[0]
    inside: dict[str, list[str]] = {}
    for path in found.values():
        if path.name != "__init__.py":
            place = path.parent.relative_to(found[package].parent).as_posix()
            inside.setdefault(place, []).append(path.stem)
    lines = [([] if place == "." else [f"{place}/"]) + sorted(names) for place, names in sorted(inside.items())]
    return sentence, [part for line in lines for part in textwrap.wrap("   ".join(line), CHARACTERS, subsequent_indent="   ")]


def lanes(pairs: list[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """A lane for each arrow that passes other folders, the shortest nearest to the boxes; none share a lane side by side."""
    at = {folder: rank for rank, folder in enumerate(FOLDERS)}
    taken: list[list[tuple[int, int]]] = []
    found = {}
    for a, b in sorted((pair for pair in pairs if at[pair[0]] - at[pair[1]] > 1), key=lambda pair: at[pair[0]] - at[pair[1]]):
        free = (n for n, spans in enumerate(taken) if all(at[a] <= low or at[b] >= high for low, high in spans))
        lane = next(free, len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append((at[b], at[a]))
        found[a, b] = lane
    return found


def draw() -> str:
    """The whole picture."""
    counts = imports()
    pairs = reduced(set(counts))
    side = lanes(pairs)
    left = MARGIN + LANE * (max(side.values(), default=-1) + 2)
    parts, top, bottom, y = [], {}, {}, MARGIN + 30.0
    for folder in FOLDERS:
        sentence, lines = contents(folder)
        height = 2 * PADDING + LINE * (1 + len(lines)) + 2
        top[folder], bottom[folder] = y, y + height
        parts += [
            f"<rect x='{left}' y='{y:g}' width='{WIDTH - left - MARGIN}' height='{height}' rx='7' {FILL}/>",
            f"<text x='{left + 16}' y='{y + PADDING + 13:g}' {FONT} font-size='15' fill='{INK}'>"
            f"<tspan font-weight='bold'>{folder}</tspan>"
            f"<tspan dx='14' font-size='12.5' fill='{QUIET}'>{escape(sentence)}</tspan></text>",
        ]
        for number, line in enumerate(lines, start=1):
            parts.append(
                f"<text x='{left + 16}' y='{y + PADDING + 15 + LINE * number:g}' xml:space='preserve' "
                f"font-family='Menlo, Consolas, monospace' font-size='12' fill='{INK}'>{escape(line)}</text>"
            )
        y += height + GAP
    numbers = []
    for a, b in pairs:
        if (a, b) in side:
            parts.append(around(a, b, left, side, top, bottom))
            numbers.append(label(left - LANE * (side[a, b] + 1), top[a] - GAP / 2, counts[a, b]))
        else:
            parts.append(arrow(f"M {left + 40} {top[a]:g} V {bottom[b] + 7:g}"))
            numbers.append(label(left + 56, top[a] - GAP / 2, counts[a, b]))
    words = "Folders of hierattn in their order: each imports only those above it. Numbers count the imports of files."
    title = f"<text x='{left}' y='{MARGIN + 8}' {FONT} font-size='13.5' fill='{INK}'>{words}</text>"
    head = (
        f"<marker id='head' viewBox='0 0 8 8' refX='2' refY='4' markerWidth='7' markerHeight='7' orient='auto'>"
        f"<path d='M 0 0 L 8 4 L 0 8 z' fill='{ARROW}'/></marker>"
    )
    size = f"viewBox='0 0 {WIDTH} {y - GAP + MARGIN:g}' width='{WIDTH}' height='{y - GAP + MARGIN:g}'"
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' aria-label='{words}'>",
            f"<defs>{head}</defs>",
            "<rect width='100%' height='100%' fill='white'/>",
            title,
            *parts,
            *numbers,
            "</svg>\n",
        ]
    )


def around(a: str, b: str, left: int, side: dict, top: dict, bottom: dict) -> str:
    """An arrow past other folders: out of a box's left edge, up a lane, into the other's, each at a height of its own."""
    leaving = sorted((pair for pair in side if pair[0] == a), key=lambda pair: side[pair])
    coming = sorted((pair for pair in side if pair[1] == b), key=lambda pair: -side[pair])
    start = top[a] + (bottom[a] - top[a]) * (0.18 + 0.32 * (leaving.index((a, b)) + 1) / (len(leaving) + 1))
    end = bottom[b] - (bottom[b] - top[b]) * (0.1 + 0.45 * (len(coming) - coming.index((a, b))) / (len(coming) + 1))
    x = left - LANE * (side[a, b] + 1)
    path = f"M {left} {start:.1f} H {x + RADIUS} Q {x} {start:.1f} {x} {start - RADIUS:.1f} V {end + RADIUS:.1f} "
    return arrow(path + f"Q {x} {end:.1f} {x + RADIUS} {end:.1f} H {left - 7}")


def arrow(path: str) -> str:
    """A line with a head."""
    return f"<path d='{path}' fill='none' stroke='{ARROW}' stroke-width='1.5' marker-end='url(#head)'/>"


def label(x: float, y: float, count: int) -> str:
    """A number on a line."""
    return (
        f"<circle cx='{x:g}' cy='{y:.1f}' r='9.5' fill='white'/><text x='{x:g}' y='{y + 4:.1f}' text-anchor='middle' {FONT} "
        f"font-size='11.5' fill='{ARROW}'>{count}</text>"
    )


if __name__ == "__main__":
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(draw())
    print(OUT)
