"""Layers of a framework that does not exist: weights drawn by NumPy, outputs by the formula, in a framework's conventions."""

import jax
import numpy as np

from hierattn import Law
from hierattn.frameworks.runs import Linear, Run, outputs_of
from tests.statistics import within

STD = {"q": 0.3, "k": 0.2, "v": 0.4, "o": 0.25}


def run(rng, X, heads=2, head_dim=4, groups=None, X_q=None, biases=None, factor=None, width=5, sinks=None, **setting):
    """One network: entries of standard deviations STD, biases and sinks of those given."""
    X = X.reshape(-1, *X.shape[-2:])
    X_q = X if X_q is None else X_q.reshape(-1, *X_q.shape[-2:])
    groups, biases = groups or heads, biases or {}
    shapes = {"q": (X_q.shape[-1], heads * head_dim), "k": (X.shape[-1], groups * head_dim)}
    shapes |= {"v": shapes["k"], "o": (heads * head_dim, width)}
    maps = {
        name: Linear(STD[name] * rng.normal(size=shape), biases[name] * rng.normal(size=shape[1]) if name in biases else None)
        for name, shape in shapes.items()
    }
    allowed = setting.pop("allowed", np.ones((len(X), X_q.shape[1], X.shape[1]), bool))
    factor = head_dim**-0.5 if factor is None else factor
    setting |= {} if sinks is None else {"sinks": sinks * rng.normal(size=heads)}
    made = Run(X_q, X, np.zeros((len(X_q), X_q.shape[1], width)), maps, heads, factor, allowed, **setting)
    return Run(**vars(made) | {"y": outputs_of(made)})


def has_variances_of(found, layer):
    """Have captured outputs the variances that the law of a layer gives their tokens, within errors over networks?"""
    v = np.einsum("mii->mi", found.S) / found.coordinates
    drawn = np.einsum("mii->mi", Law(layer, found.kernel).sample_Sigma(jax.random.key(0), 20_000))
    error = np.sqrt(v.var(axis=0) / len(v) + drawn.var(axis=0) / len(drawn))
    return within(v.mean(axis=0), drawn.mean(axis=0), error)
