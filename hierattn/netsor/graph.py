"""A program as a picture: a layered graph in SVG, written by hand."""

from html import escape
from typing import Any

from hierattn.netsor.notation import definitions, text_of

STEP, HIGH, GAP, CHARACTER = 64, 30, 26, 7.2  # of the graph, in pixels
STYLES = {
    "Vectors": ("#eef4fa", "#2e7fb8"),
    "Scalars": ("#fbeef0", "#d1495b"),
    "Outputs": ("#ffffff", "#111111"),
    "Initial": ("#fdf6e6", "#e6a12b"),
}


def graph(program: Any) -> str:
    """A program as SVG: initial vectors and what has a name, in layers, with an arrow for what is used in what."""
    shown = [f for f in program.families if f in program.names or (not f.parts and type(f).__name__ == "Vectors")]
    parents = {f: list(dict.fromkeys(g for part in f.parts for g in _above(part, shown))) for f in shown}
    layer: dict[Any, int] = {}
    for f in shown:
        layer[f] = 1 + max((layer[g] for g in parents[f]), default=-1)
    written = definitions(program)
    words = {f: f"{text_of(f, program.names)} = {written[f]}" if f in written else text_of(f) for f in shown}
    rows = [[f for f in shown if layer[f] == k] for k in range(max(layer.values()) + 1)]
    wide = {f: CHARACTER * len(words[f]) + 20 for f in shown}
    width = max(CHARACTER * len(program.title), *(sum(wide[f] + GAP for f in row) for row in rows)) + 2 * GAP
    place = {}
    for k, row in enumerate(rows):
        left = (width - sum(wide[f] + GAP for f in row) + GAP) / 2
        for f in row:
            place[f] = (left, k * STEP + GAP + 18)
            left += wide[f] + GAP
    lines = [
        f'<path d="M{place[g][0] + wide[g] / 2:.1f} {place[g][1] + HIGH:.1f} C{place[g][0] + wide[g] / 2:.1f} '
        f"{place[f][1] - 8:.1f} {place[f][0] + wide[f] / 2:.1f} {place[g][1] + HIGH + 12:.1f} "
        f'{place[f][0] + wide[f] / 2:.1f} {place[f][1] - 5:.1f}" fill="none" stroke="#888" marker-end="url(#arrow)"/>'
        for f in shown
        for g in parents[f]
    ]
    for f, (x, y) in place.items():
        fill, stroke = STYLES[type(f).__name__ if f.parts else "Initial"]
        box = f'x="{x:.1f}" y="{y}" width="{wide[f]:.1f}" height="{HIGH}" rx="6"'
        lines.append(f'<rect {box} fill="{fill}" stroke="{stroke}"/>')
        lines.append(f'<text x="{x + wide[f] / 2:.1f}" y="{y + 20}" text-anchor="middle">{_raised(words[f])}</text>')
    height = len(rows) * STEP + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" '
        'font-family="DejaVu Sans, sans-serif" font-size="12">\n<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#888"/></marker></defs>\n'
        f'<rect width="100%" height="100%" fill="white"/>\n<text x="{width / 2:.0f}" y="22" text-anchor="middle" '
        f'font-weight="bold">{escape(program.title)}</text>\n' + "\n".join(lines) + "\n</svg>\n"
    )


def _above(family: Any, shown: list[Any]) -> list[Any]:
    """The shown families that a part is made of."""
    return [family] if family in shown else [g for part in family.parts for g in _above(part, shown)]


def _raised(words: str) -> str:
    """Indices as superscripts."""
    pieces = words.replace("^{", "^").replace("}", "\0").split("^")
    out = escape(pieces[0])
    for piece in pieces[1:]:
        index, rest = piece.split("\0", 1) if "\0" in piece else (piece[:1], piece[1:])
        out += f'<tspan dy="-4" font-size="9">{escape(index)}</tspan><tspan dy="4">{escape(rest) or "&#8203;"}</tspan>'
    return out
