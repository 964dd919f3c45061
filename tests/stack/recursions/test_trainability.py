"""The map is the mean field at each of its places; words follow from its numbers."""

import numpy as np

from hierattn import MLP, Architecture, Block, Embedding, Norm, Stack
from hierattn.stack.recursions.mean_field import Exchangeable, exact, mean_field
from hierattn.stack.recursions.trainability import Map, nearly_exact, trainability

BLOCK = Block(attention=Architecture(heads=2), mlp=MLP(activation="relu"), norm=Norm(), placement="post")
STACK = Stack(width=None, embedding=Embedding(kernel=0.2 + 0.8 * np.eye(9)), blocks=[BLOCK] * 2)


def test_places_are_those_of_mean_field():
    done = []
    found = trainability(STACK, [0.7, 3.0], [0.5, 1.5], done.append)
    assert sum(done) == 4
    for i, gain in enumerate(found.gains):
        for j, scale in enumerate(found.score_scales):
            how = {"attention_gain": gain, "mlp_gain": gain, "norm": BLOCK.norm, "placement": "post", "mlp": BLOCK.mlp}
            block = Block(attention=BLOCK.attention.replace(sigma_q=scale), **how)
            states = mean_field(STACK.replace(blocks=[block] * 2))
            assert np.isclose(found.cosine[i, j], states[-1].cosine, atol=1e-6)
            assert np.isclose(found.weight[i, j], exact(9, scale, states[1])[0], rtol=1e-5)
    assert np.all(np.diff(found.weight, axis=1) > 0)  # sharper scores, more weight on one key
    assert np.all(found.weight_of_limit <= found.weight)


def test_coarse_integrals_are_good_enough():
    for tokens, scale, k in ((9, 0.5, 0.3), (512, 3.0, 0.5), (512, 8.0, 0.9)):
        state = Exchangeable(1.0, k)
        np.testing.assert_allclose(nearly_exact(tokens, scale, state), exact(tokens, scale, state), rtol=1e-5)
    assert nearly_exact(9, 0.0, Exchangeable(1.0, 0.5)) == (1 / 9, 1 / 9)


def test_words():
    cosine, weight = np.array([[0.99, 0.99, 0.3, 0.3]]), np.array([[0.9, 0.1, 0.9, 0.1]])
    found = Map(np.ones(4), np.ones(1), cosine, weight, cosine, weight)
    assert found.fate.tolist() == [["collapsed", "collapsed", "frozen", "alive"]]
