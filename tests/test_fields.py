"""Every field of a layer's description through every consumer; the table is printed in docs/fields.md."""

from dataclasses import fields as fields_of

import pytest

from hierattn import Architecture
from hierattn.layer.checks import SCALE_NAMES
from tests import fields
from tests.variants import variants

ROWS = fields.rows()
SELDOM = {
    "score_function sigmoid",
    "score_function identity",
    "mask",
    "bias",
    "bias per head",
    "scales per head",
    "scaling linear",
    "scaling linear, infinite head_dim",
    "rotary",
    "rotary, infinite head_dim",
    "key_value_heads, infinite head_dim",
}
SELDOM |= {name for name in ROWS if name.startswith(("score_function", "window", "chunk", "qk_norm", "cap", "sink"))}
SELDOM -= {"qk_norm rms, head_dim", "cap, head_dim, bias"}


@pytest.mark.parametrize("name", variants(ROWS, ROWS.keys() - SELDOM))
def test_a_field_agrees_with_explicit_networks_or_is_refused_by_name(name):
    """8,192 networks a side, at 4.9 standard errors; a covariance that is off by a tenth is seen (see `agree`)."""
    found = {column: fields.cell(ROWS[name], consume) for column, consume in fields.CONSUMERS.items()}
    assert found == fields.written()[name], "run python -m tests.fields"


def test_every_field_has_a_row():
    """A new field of the description makes this fail until all consumers have met it."""
    walked = {row.field for row in ROWS.values()} | set(SCALE_NAMES)
    assert walked >= {field.name for field in fields_of(Architecture)}
    assert walked >= {"kernel", "query_kernel"}


def test_no_cell_is_empty():
    cells = fields.written()
    assert list(cells) == list(ROWS)
    assert all(list(row) == list(fields.CONSUMERS) and all(row.values()) for row in cells.values())
