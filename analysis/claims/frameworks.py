"""Attention layers of PyTorch and Flax follow the law of finite head_dim with no fitted parameter: width 256, 4 heads, 8
tokens, 2,000 networks, causal and not. Variance of every token within 2 % and 4 standard errors, excess kurtosis (3 Var v /
E[v]^2, from pairs of coordinates of a network) within 4 standard errors, the Gaussian of infinitely many heads 5 of them away.
With Gaussian weights, where the law is exact, and with the frameworks' own: Xavier-uniform (PyTorch) and truncated LeCun-normal
(Flax), where the kurtosis of single coordinates, given beside, differs by a term of order 1 / (H n_H)."""

from functools import partial

import numpy as np

import hierattn as ha
from hierattn.law.marginal import jackknife_error

SEED = 0
WIDTH, HEADS, TOKENS, NETWORKS = 256, 4, 8, 2_000
X = np.random.default_rng(SEED).normal(size=(TOKENS, WIDTH)).astype(np.float32)


def flax_layer(init: str, seed: int):
    """A layer of Flax; biases are zero, as by default."""
    from flax import nnx

    initialisers = {
        "gaussian": nnx.initializers.normal(WIDTH**-0.5),
        "lecun": nnx.initializers.lecun_normal(),
    }
    options = {"decode": False, "kernel_init": initialisers[init], "rngs": nnx.Rngs(seed)}
    return nnx.MultiHeadAttention(num_heads=HEADS, in_features=WIDTH, **options)


def torch_layer(init: str):
    """A layer of PyTorch."""
    from torch import nn

    layer = nn.MultiheadAttention(WIDTH, HEADS)
    if init == "gaussian":
        for weight in (layer.in_proj_weight, layer.out_proj.weight):
            nn.init.normal_(weight, std=WIDTH**-0.5)
    return layer


def inputs(framework: str, causal: bool):
    """Arguments of a call: all tokens, or those before."""
    if framework == "flax":
        return {"inputs_q": X, "mask": np.tri(TOKENS, dtype=bool)[None]} if causal else X
    same = dict.fromkeys(("query", "key", "value"), X)
    return same | ({"attn_mask": ~np.tri(TOKENS, dtype=bool)} if causal else {})


def features(y: np.ndarray) -> np.ndarray:
    """Of every network (network, 3, token): mean square, product of squares of two coordinates, mean fourth power."""
    square, C = y**2, y.shape[2]
    total, fourth = square.sum(axis=2), (square**2).sum(axis=2)
    return np.stack([total / C, (total**2 - fourth) / (C * (C - 1)), fourth / C], axis=1)


def statistics(means: np.ndarray) -> np.ndarray:
    """Variance, excess kurtosis from pairs of coordinates, and from single ones, of every token, from means of features."""
    second, pairs, fourth = np.moveaxis(means, -2, 0)
    return np.stack([second, 3 * (pairs / second**2 - 1), fourth / second**2 - 3], axis=-2)


def case(framework: str, init: str, causal: bool, networks: int = NETWORKS) -> dict:
    """One layer against its law, token by token: the worst of all tokens."""
    model = partial(flax_layer, init) if framework == "flax" else partial(torch_layer, init)
    found = ha.capture(model, inputs(framework, causal), networks=networks, seed=SEED)
    law = ha.Law(found.layer.replace(mask=found.mask), found.kernel)
    truth = [law.moments(token) for token in range(TOKENS)]
    each = np.concatenate([features(part.astype(float)) for part in np.array_split(found.outputs, 20)])
    seen = statistics(each.mean(axis=0))
    error = jackknife_error(statistics((each.sum(axis=0) - each) / (networks - 1)))  # without each network in turn
    law_variance, law_kurtosis = (np.array([getattr(m, name) for m in truth]) for name in ("variance", "excess_kurtosis"))
    off, z_variance = seen[0] / law_variance - 1, (seen[0] - law_variance) / error[0]
    z_kurtosis, z_gaussian = (seen[1] - law_kurtosis) / error[1], seen[1] / error[1]
    passed = np.abs(off).max() < 0.02 and max(np.abs(z_variance).max(), np.abs(z_kurtosis).max()) < 4 and z_gaussian.min() > 5
    return {
        "passed": bool(passed),
        "variance_off_by": float(np.abs(off).max()),
        "variance_z": float(np.abs(z_variance).max()),
        "kurtosis_law": float(law_kurtosis[-1]),
        "kurtosis": float(seen[1, -1]),
        "kurtosis_error": float(error[1, -1]),
        "kurtosis_z": float(np.abs(z_kurtosis).max()),
        "gaussian_z": float(z_gaussian.min()),
        "kurtosis_of_single_coordinates": float(seen[2, -1]),
        "kurtosis_of_single_coordinates_error": float(error[2, -1]),
        "score_scale": found.description.scales["score_scale"],
        "scales_from": found.description.variances["q"].origin,
        "networks": networks,
    }


KINDS = {"flax": ("gaussian", "lecun"), "torch": ("gaussian", "xavier")}
CASES = {
    f"{framework}, {init}, {'causal' if causal else 'all tokens'}": partial(case, framework, init, causal)
    for framework, inits in KINDS.items()
    for init in inits
    for causal in (False, True)
}
