"""What a norm is, by its numbers: kinds, gains and eps of libraries' own and of a user's; others are none."""

import numpy as np
import pytest
import torch
from torch import nn

from hierattn import InputError
from hierattn.frameworks.runs import Norm
from hierattn.frameworks.torch_norms import norm_of, of_both

X = torch.tensor(np.random.default_rng(0).normal(size=(2, 3, 6)), dtype=torch.float32)


class Gemma(nn.Module):
    """Multiplied by one more than the weight."""

    def __init__(self):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.linspace(-0.5, 0.5, 6)), 0.2

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon) * (1 + self.weight)


class Lengths(nn.Module):
    """Divided by the length."""

    def forward(self, x):
        return x / x.norm(dim=-1, keepdim=True)


def found(module):
    with torch.no_grad():
        return norm_of(module, X.numpy(), module(X).numpy())


def test_kinds():
    rms = nn.RMSNorm(6, eps=0.1)
    nn.init.uniform_(rms.weight)
    for module, kind, gain, eps in (
        (rms, "rms", rms.weight.detach().numpy(), 0.1),
        (nn.RMSNorm(6, elementwise_affine=False), "rms", np.ones(6), np.finfo("f").eps),
        (Gemma(), "rms", 1 + np.linspace(-0.5, 0.5, 6), 0.2),
        (nn.LayerNorm(6, eps=0.3), "layer", np.ones(6), 0.3),
    ):
        norm = found(module)
        assert (norm.kind, norm.eps) == (kind, eps)
        np.testing.assert_allclose(norm.gain, gain, rtol=1e-6)


def test_others_are_none():
    shifted = nn.LayerNorm(6)
    nn.init.ones_(shifted.bias)
    other = nn.RMSNorm(6, eps=0.1)
    with torch.no_grad():
        y = other(X).numpy()
    other.eps = 0.12
    assert norm_of(other, X.numpy(), y) is None
    for module in (shifted, Lengths(), nn.Identity(), nn.Tanh(), nn.LayerNorm((3, 6))):
        assert found(module) is None


def test_norms_of_both():
    head, all_q, all_k = (Norm("rms", np.ones(size), 0.1) for size in (6, 24, 12))
    assert of_both(None, None, 4, 2, 6, "layer") is None
    assert of_both(head, head, 4, 2, 6, "layer") == (head, head)
    assert [norm.kind for norm in of_both(all_q, all_k, 4, 2, 6, "layer")] == ["rms_all", "rms_all"]
    for q, k, got in (
        (head, None, "one of queries alone"),
        (None, head, "one of keys alone"),
        (head, all_k, "rms over 6 and rms over 12"),
        (head, head._replace(kind="layer"), "rms over 6 and layer over 6"),
        (all_q._replace(kind="layer"), all_k._replace(kind="layer"), "layer over 24 and layer over 12"),
    ):
        with pytest.raises(InputError, match=got):
            of_both(q, k, 4, 2, 6, "layer")
