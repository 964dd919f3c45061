"""Nine programs of the theorem, each written as the paper would write it.

    hierattn netsor analysis/programs.py --program attention

Attention is one example of many: any network made of these pieces has a law, a simulator and a NumPyro model of its own.
"""

import jax
import jax.numpy as jnp

from hierattn import kernels
from hierattn.netsor import Program, dot, matrix, nonlin, output, vector


def attend(p, v):
    """H^{-1/2} sum_a sum_j softmax(p^a)_ij v^{a,j}."""
    return jnp.sum(jax.nn.softmax(p) @ v, axis=0) / len(p) ** 0.5


def mix(p, v):
    """The same with one head: sum_j softmax(p)_ij v^j."""
    return jax.nn.softmax(p) @ v


def attention(tokens: int = 2, heads: int = 2, phi="clip", score_scale: float = 1.0, value_scale: float = 1.0) -> Program:
    """Multi-head attention with the paper's inputs (Example 3.1)."""
    h, W = vector("h"), matrix("W", i=tokens)
    Q, V = matrix("Q", sigma=score_scale, a=heads), matrix("V", sigma=value_scale, a=heads)
    K, W_O = matrix("K", a=heads), matrix("O", a=heads)
    x = nonlin(phi, W @ h)
    p = dot(Q @ x, K @ x.at(i="j"))
    v = W_O @ (V @ x.at(i="j"))
    y = output(attend, p, v, axes="i")
    return Program("multi-head attention", y, x=x, p=p, v=v)


def relu_attention(tokens: int = 3) -> Program:
    """One head on correlated tokens through a ReLU."""
    h = vector("h", kernels.equicorrelated(tokens, 0.5), i=tokens)
    Q, K, V = matrix("Q", sigma=2.0), matrix("K"), matrix("V")
    x = nonlin("relu", h)
    p = dot(Q @ x, K @ x.at(i="j"))
    v = V @ x.at(i="j")
    return Program("ReLU attention", output(mix, p, v, axes="i"), x=x, p=p, v=v)


def mlp_attention(tokens: int = 3, phi="tanh") -> Program:
    """Two layers of a multilayer perceptron in front of attention."""
    h = vector("h", kernels.rbf(tokens, 1.0), i=tokens)
    W, U = matrix("W", sigma=1.5), matrix("U", sigma=1.5)
    Q, K, V = matrix("Q", sigma=2.0), matrix("K"), matrix("V")
    x = nonlin(phi, U @ nonlin(phi, W @ h))
    p = dot(Q @ x, K @ x.at(i="j"))
    v = V @ x.at(i="j")
    return Program("MLP and attention", output(mix, p, v, axes="i"), x=x, p=p, v=v)


def recurrent(phi="tanh") -> Program:
    """A step of a recurrent network, whose matrix W acts twice: s = phi(W s0 + U x), y = W s."""
    x, s0 = vector("x", kernels.rbf(2, 1.0), i=2), vector("s0")
    W, U = matrix("W", sigma=1.2), matrix("U")
    s = nonlin(phi, W @ s0 + U @ x)
    return Program("recurrent step", W @ s, s=s)


def shared_keys(tokens: int = 2) -> Program:
    """Two heads with one W^K: their scores share a matrix, and are independent all the same in the limit."""
    h = vector("h", kernels.equicorrelated(tokens, 0.3), i=tokens)
    Q, K, V = matrix("Q", sigma=1.5, a=2), matrix("K"), matrix("V", a=2)
    x = nonlin("erf", h)
    p = dot(Q @ x, K @ x.at(i="j"))
    v = V @ x.at(i="j")
    return Program("two heads share W^K", output(attend, p, v, axes="i"), x=x, p=p, v=v)


def cross_attention(queries: int = 2, keys: int = 3) -> Program:
    """Queries from one sequence, keys and values from another."""
    h, g = vector("h", kernels.rbf(queries, 2.0), i=queries), vector("g", kernels.rbf(keys, 1.0), j=keys)
    Q, K, V = matrix("Q", sigma=2.0), matrix("K"), matrix("V")
    z = nonlin("gelu", g)
    p = dot(Q @ h, K @ z)
    v = V @ z
    return Program("cross-attention", output(mix, p, v, axes="i"), z=z, p=p, v=v)


def weigh(p, v):
    """The values weighed by the scores themselves."""
    return p @ v


def linear_attention(tokens: int = 2) -> Program:
    """Attention without softmax: y^i = sum_j p^{i,j} v^j."""
    h = vector("h", kernels.equicorrelated(tokens, 0.5), i=tokens)
    Q, K, V = matrix("Q"), matrix("K"), matrix("V")
    p = dot(Q @ h, K @ h.at(i="j"))
    v = V @ h.at(i="j")
    return Program("linear attention", output(weigh, p, v, axes="i"), p=p, v=v)


def open_gate(p, g):
    """Sigmoid(p) g, the same gate for every coordinate."""
    return jax.nn.sigmoid(p) * g


def gate() -> Program:
    """A bilinear gate: y = sigmoid(p) g, p = <A x, B x'> / sqrt(n), g = V x."""
    h = vector("h", kernels.equicorrelated(2, 0.5), i=2)
    A, B, V = matrix("A", sigma=2.0), matrix("B"), matrix("V")
    x = nonlin("relu", h)
    p = dot(A @ x.at(i=0), B @ x.at(i=1))
    g = V @ x.at(i=0)
    return Program("bilinear gate", output(open_gate, p, g), x=x, p=p, g=g)


def residual_mlp(tokens: int = 2, blocks: int = 2, phi="relu") -> Program:
    """A residual network: x <- x + V phi(W x), block after block, and a linear readout."""
    x = vector("x", kernels.equicorrelated(tokens, 0.5), i=tokens)
    names = {}
    for b in range(1, blocks + 1):
        W, V = matrix(f"W{b}", sigma=1.4), matrix(f"V{b}")
        x = names[f"x{b}"] = x + V @ nonlin(phi, W @ x)
    return Program("residual MLP", matrix("R") @ x, **names)
