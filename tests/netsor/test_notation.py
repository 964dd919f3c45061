"""Programs as they are printed and drawn."""

import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from analysis import programs
from hierattn.netsor import Program, matrix, nonlin, vector
from hierattn.netsor.graph import graph

ATTENTION = """\
multi-head attention
  Q^a, W^i, K^a, O^a, V^a  matrices, entries N(0, 1/n)
  h  initial, coordinates N(0, 1)
  x^i = clip(W^i h)
  p^{a,i,j} = <Q^a x^i, K^a x^j> / sqrt(n)
  v^{a,j} = O^a V^a x^j
  y^i = attend(p^{a,i,j}, v^{a,j})
  a = 1..2, i = 1..4, j = 1..4"""


def test_a_program_is_printed_as_the_paper_writes_it():
    assert str(programs.attention(4, 2)) == ATTENTION


def test_sums_views_and_names():
    text = str(programs.residual_mlp())
    assert "x1^i = x^i + V1 relu(W1 x^i)" in text
    assert "y^i = R x2^i" in text
    assert "p = <A x^1, B x^2> / sqrt(n)" in str(programs.gate())
    assert "s^i = tanh(W s0 + U x^i)" in str(programs.recurrent())
    h, g = vector("h"), vector("g", 2.0)
    assert "y = W (h + g)" in str(Program("sum", matrix("W", sigma=0.5) @ (h + g)))
    assert "g  initial, coordinates N(0, 2)" in str(Program("sum", matrix("W") @ (h + g)))


def test_letters_meet():
    W, x = matrix("W", i=2), vector("x", np.eye(6), i=2, j=3)
    y = W @ x
    assert (y.axes, y.sizes) == (("i", "j"), {"i": 2, "j": 3})
    assert y.atoms[1, 2].W is W.atoms[1]
    assert y.atoms[1, 2].x is x.atoms[1, 2]
    assert (W.at(i="k") @ x).axes == ("k", "i", "j")
    assert x.at(j=-1).sizes == {"i": 2}
    assert x.at(j=-1).atoms[0] is x.atoms[0, 2]
    assert str(x.at(i="k", j=1)) == "x^{k,2}"


def test_what_is_written_twice_is_one_variable():
    W, x = matrix("W"), vector("x", i=2)
    assert (W @ x).atoms[0] is (W @ x.at(i="j")).atoms[0]
    assert nonlin("relu", x).atoms[1] is nonlin("relu", x).atoms[1]


@pytest.mark.parametrize("name", ["attention", "residual_mlp", "gate"])
def test_a_graph_is_svg_with_everything_named(name):
    program = getattr(programs, name)()
    root = ET.fromstring(graph(program))
    boxes = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("rx")]
    texts = ["".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == program.title
    assert len(boxes) == len(texts) - 1
    for label in program.names.values():
        assert any(text.startswith(label) for text in texts[1:])
    right = max(float(b.get("x")) + float(b.get("width")) for b in boxes)
    assert right <= float(root.get("width"))
    rows = {}
    for b in boxes:  # boxes of a row do not overlap
        rows.setdefault(b.get("y"), []).append((float(b.get("x")), float(b.get("width"))))
    for row in rows.values():
        row.sort()
        assert all(a[0] + a[1] <= b[0] for a, b in pairwise(row))


def test_names_are_escaped():
    svg = graph(Program("<script>alert(1)</script> & more", matrix("W") @ vector("h")))
    assert "<script>" not in svg
    ET.fromstring(svg)


def test_the_picture_of_the_readme_is_what_is_drawn():
    file = Path(__file__).parents[2] / "analysis" / "figures" / "program.svg"
    assert file.read_text() == graph(programs.attention())
