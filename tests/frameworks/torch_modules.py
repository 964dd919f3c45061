"""Attention layers of users of PyTorch, written by hand: they all call scaled_dot_product_attention."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

N, HEADS, HEAD_DIM = 16, 4, 6


def turned(x, interleaved=False, rotate=HEAD_DIM):
    """x (batch, head, token, coordinate), its first coordinates turned in pairs that are half of them apart, or neighbours."""
    part, rest = x[..., :rotate], x[..., rotate:]
    angle = torch.arange(x.shape[-2])[:, None] * 100.0 ** (-torch.arange(rotate // 2) / (rotate // 2))
    pairs = part.unflatten(-1, (-1, 2)) if interleaved else part.unflatten(-1, (2, -1)).transpose(-1, -2)
    spun = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angle), angle))
    spun = spun.flatten(-2) if interleaved else spun.transpose(-1, -2).flatten(-2)
    return torch.cat([spun, rest], dim=-1)


class Packed(nn.Module):
    """Queries, keys and values in one Linear."""

    def __init__(self, turn=lambda x: x, norm=None, options=None, bias=True):
        super().__init__()
        self.into = nn.Linear(N, 3 * HEADS * HEAD_DIM, bias=bias)
        self.out = nn.Linear(HEADS * HEAD_DIM, N)
        self.norms = nn.ModuleList([norm(), norm()]) if norm else [nn.Identity(), nn.Identity()]
        self.turn, self.options = turn, options or {}

    def forward(self, x):
        q, k, v = self.into(x).unflatten(-1, (3, HEADS, HEAD_DIM)).unbind(-3)
        q, k, v = (a.transpose(-2, -3) for a in (self.norms[0](q), self.norms[1](k), v))
        y = scaled_dot_product_attention(self.turn(q), self.turn(k), v, **self.options)
        return self.out(y.transpose(-2, -3).flatten(-2))


class Grouped(nn.Module):
    """Keys and values of two heads, repeated by hand or by PyTorch; coordinates before heads, norms over all of them."""

    def __init__(self, enable_gqa=False, repeat=lambda x: x.repeat_interleave(2, dim=1), over_all=False):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(N, heads * HEAD_DIM, bias=False) for heads in (4, 2, 2))
        self.out = nn.Linear(HEADS * HEAD_DIM, N, bias=False)
        self.q_norm, self.k_norm = (nn.RMSNorm(n * HEAD_DIM, eps=0.01) if over_all else nn.Identity() for n in (4, 2))
        self.enable_gqa, self.repeat = enable_gqa, repeat

    def forward(self, x):
        heads = (
            a.reshape(len(x), -1, HEAD_DIM, n).permute(0, 3, 1, 2)
            for a, n in ((self.q_norm(self.q(x)), 4), (self.k_norm(self.k(x)), 2), (self.v(x), 2))
        )
        q, k, v = heads
        if not self.enable_gqa:
            k, v = self.repeat(k), self.repeat(v)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.7, enable_gqa=self.enable_gqa)
        return self.out(y.permute(0, 2, 3, 1).flatten(2))


class Inner(nn.Module):
    """Without weights of its own."""

    def forward(self, q, k, v, mask):
        return scaled_dot_product_attention(q, k, v, mask)


class Crossed(nn.Module):
    """Memory that is looked at, the call in a part without weights; one head without an axis of heads."""

    def __init__(self, memory):
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(N, HEAD_DIM), nn.Linear(8, 2 * HEAD_DIM), nn.Linear(HEAD_DIM, N)
        self.inner, self.memory = Inner(), memory

    def forward(self, x, mask=None):
        k, v = self.kv(self.memory).chunk(2, dim=-1)
        return self.out(self.inner(self.q(x), k, v, mask))


class Model(nn.Module):
    """Two blocks, one of them of torch.nn."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Packed(), nn.MultiheadAttention(N, HEADS, batch_first=True), Packed(turned)])

    def forward(self, x):
        x = x + self.blocks[0](x)
        x = x + self.blocks[1](x, x, x)[0]
        return x + self.blocks[2](x)
