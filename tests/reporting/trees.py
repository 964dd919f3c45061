"""A fit as `fit` writes it, made by hand: draws near the truth, predictions by the law's definition, no sampler."""

import json

import numpy as np
import xarray as xr

from tests.diagnostics import drawn

ROW = {"mean": 1.6, "sd": 0.1, "eti90_lb": 1.44, "eti90_ub": 1.76, "rhat": 1.001, "ess_bulk": 900.0, "ess_tail": 800.0}


def fit(networks=40, coordinates=16, draws=60, words="outputs.npz", verdict="CONVERGED", reasons=(), seed=0, offset=0.0):
    """Two chains; `words` is what a user could have put into a name."""
    rng = np.random.default_rng(seed)
    y = drawn.law(seed, networks, coordinates)
    truth = {"score_scale": 1.6, "value_scale": 1.0}
    scales = {name: (["chain", "draw"], rng.normal(mean, 0.02, (2, draws))) for name, mean in truth.items()}
    new = np.stack([drawn.law(seed + 1 + r, networks, coordinates) for r in range(20)]).reshape(2, 10, *y.shape)
    axes = ["network", "token", "coordinate"]
    constants = {"tokens": ("token", np.arange(4)), "heads": 1, "coordinates": coordinates, "head_dim": 0}
    kernel = ["kernel_token", "kernel_token_"]
    constants |= {"K": (kernel, np.eye(4)), "mask": (kernel, np.ones((4, 4), "int8"))}
    groups = {
        "posterior": xr.Dataset(scales),
        "sample_stats": xr.Dataset({"lp": (["chain", "draw"], rng.normal(size=(2, draws)))}),
        "posterior_predictive": xr.Dataset({"y": (["chain", "draw", *axes], new)}),
        "observed_data": xr.Dataset({"y": (axes, y)}),
        "constant_data": xr.Dataset(constants),
        "log_likelihood": xr.Dataset({"y": (["chain", "draw", "network"], rng.normal(offset, 0.1, (2, draws, networks)))}),
    }
    tree = xr.DataTree.from_dict(groups)
    table = {name: ROW | {"identified": True} for name in ("score_scale", "value_scale")}
    tree.attrs = {"model": "limit_law", "method": "networkwise", "why": words, "source": words, "verdict": verdict}
    tree.attrs |= {"reasons": json.dumps(list(reasons)), "parameters": json.dumps(table), "command": f"hierattn fit {words}"}
    return tree
