"""The page and the picture of a stack: what they show is what is told, and they need nothing else."""

import re

import jax
import numpy as np
import pytest

from hierattn import MLP, Architecture, Block, Embedding, Norm, Stack
from hierattn.base.provenance import provenance
from hierattn.numerics import rqmc
from hierattn.reporting import depth
from hierattn.stack.recursions.baselines import FIELD, HEADS, LINEAR, MANY, WIDTH, averaging, baselines
from hierattn.stack.summary import look, summary_of
from tests.reporting.test_page import Page

NETWORKS = 64
BLOCK = Block(attention=Architecture(heads=2, head_dim=4, sigma_q=2.0), mlp=MLP(width=12), norm=Norm())
STACK = Stack(width=8, embedding=Embedding.independent(3), blocks=[BLOCK] * 2, final_norm=Norm())


def told(stack):
    return summary_of(stack, [look(stack, stack.sample(jax.random.key(0), NETWORKS))])


def of(stack, others=None):
    return depth.Depth(stack, told(stack), others or {}, NETWORKS, -1, provenance(0, command="hierattn depth"))


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rqmc, "BUDGET", 2**16)
        return of(STACK, baselines(STACK, jax.random.key(1), NETWORKS))


def test_other_theories_have_their_limits(found):
    """Recursions agree with draws in the first layer; without scores all tokens become the same average."""
    assert set(found.others) == {WIDTH, LINEAR, HEADS, FIELD, MANY}
    limit = found.others[WIDTH]
    assert all(len(numbers["cosine"]) == len(numbers["norm"]) == 4 for numbers in found.others.values())
    for name in (HEADS, FIELD):
        gap = np.array(found.others[name]["cosine"][1]) - limit["cosine"][1]
        assert abs(gap) < 5 * limit["cosine_spread"][1] / NETWORKS**0.5 + 0.02, name
    alone = STACK.replace(blocks=[Block(attention=BLOCK.attention, placement="none", skip=0.0)], final_norm=None)
    gram = averaging(alone).sample(jax.random.key(0), 4).apart[:, 1]
    np.testing.assert_allclose(gram, 0, atol=1e-12)


def test_the_page_shows_what_is_told(found):
    page = Page(depth.page(found))
    assert not page.of("script")
    assert len(page.of("svg", role="img")) == len(depth.KINDS) == 6
    text = depth.page(found)
    assert "//" not in re.sub(r'xmlns(:\w+)?="[^"]+"', "", text)
    assert f"{found.told['cosine'][2]:.4g}" in text
    assert depth.verdict(found) in text
    assert f"of {found.told['cosine'][2]:.2f} after the last block" in text
    assert "<dt>2 blocks</dt><dd><code>pre rms norm; 2 heads of 4; gelu MLP of 12</code></dd>" in text
    assert np.isnan(found.numbers("entropy")[0])
    assert list(found.numbers("norm")) == found.told["norm"][:3]  # without the final norm


VERDICTS = {
    "all keys alike": ({"entropy": 0.99 * np.log(3)}, "attention looks at all keys alike"),
    "one key": ({"largest": 0.95}, "attention looks at one key (weight 0.95)"),
    "collapsed": ({"cosine": 0.999}, "tokens have collapsed (mean cosine 1.00)"),
    "apart": ({"cosine": 0.1}, "tokens are still apart (mean cosine 0.10); attention chooses among keys"),
    "between": ({"cosine": 0.7}, "tokens are drawn together (mean cosine 0.70)"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name, found):
    """Two blocks, of which the last counts for cosines, and both for weights."""
    changed, words = VERDICTS[name]
    usual = {"entropy": 0.5, "largest": 0.6}
    told = found.told | {key: [None, value, value, None] for key, value in (usual | changed).items()}
    assert words in depth.verdict(found._replace(told=told))


@pytest.mark.parametrize(
    ("stack", "words", "without"),
    [
        (STACK.replace(blocks=[Block(mlp=MLP(), norm=Norm())]), "there is no attention", {"weights"}),
        (STACK.replace(embedding=Embedding.independent(1)), "There is one token", {"cosine", "apart", "rank"}),
    ],
)
def test_what_there_is_nothing_of_is_not_shown(stack, words, without):
    found = of(stack)
    assert words in depth.page(found)
    assert depth.kinds(found).keys() == depth.KINDS.keys() - without


def test_the_picture_has_all_figures(found, tmp_path):
    depth.picture(found).savefig(tmp_path / "depth.png")
    shown = [ax for ax in depth.picture(found).axes if ax.axison]
    assert [ax.get_title() for ax in shown] == [kind.title for kind in depth.KINDS.values()]
    lines = {line.get_label(): line.get_ydata() for line in shown[0].lines}
    np.testing.assert_array_equal(lines[HEADS], found.others[HEADS]["cosine"][:3])
    given = of(STACK.replace(embedding=Embedding.given(np.eye(3, 8))))
    assert "Inputs are given" in depth.page(given)
