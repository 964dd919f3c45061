"""The law of finite head dimension explains heads as narrow as 8 where the limit does not.

One head, four tokens, clip inputs, width 1024: what is left of the distance is the randomness of the inputs.
"""

import matplotlib.pyplot as plt
import numpy as np
from plotting import SEED, SERIES, against, main

from hierattn import Architecture, FiniteWidth, RandomInputs
from hierattn.law.marginal import from_draws

HEAD_DIMS, WIDTH, NETWORKS = (8, 16, 32, 64, 128), 1024, 2**20


def compute(quick: bool) -> dict:
    """KL and kurtosis for every head dimension."""
    found, networks = {}, 2**14 if quick else NETWORKS
    for n_H in HEAD_DIMS[:1] if quick else HEAD_DIMS:
        law = FiniteWidth(Architecture(head_dim=n_H), RandomInputs(WIDTH))
        finite, limit, kept = from_draws(law, 0, networks, SEED), law.limit.marginal(), law.fixed_head_dim.marginal()
        near, far = against(finite, kept), against(finite, limit)
        found[str(n_H)] = {
            "kl": far["kl"],
            "kl_error": far["kl_error"],
            "head_dim_kl": near["kl"],
            "head_dim_kl_error": near["kl_error"],
            "excess_kurtosis_finite": far["excess_kurtosis"],
            "excess_kurtosis_finite_error": far["excess_kurtosis_error"],
            "excess_kurtosis_limit": float(limit.excess_kurtosis),
            "head_dim_excess_kurtosis_limit": float(kept.excess_kurtosis),
        }
    return {"head_dims": found}


def draw(results: dict) -> plt.Figure:
    """KL from both laws; kurtosis of networks and of both laws."""
    figure, (kl, kurtosis) = plt.subplots(1, 2, figsize=(9, 3.6))
    dims, runs = np.array([int(n) for n in results["head_dims"]]), list(results["head_dims"].values())
    columns = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    for name, style, label in (
        ("kl", SERIES[3], "from the limit"),
        ("head_dim_kl", SERIES[1], "from the law that keeps $n_H$"),
    ):
        kl.errorbar(dims, columns[name], columns[f"{name}_error"], **style, capsize=2, label=label)
    kl.set(
        xscale="log", yscale="log", xlabel="head dimension $n_H$", ylabel="KL(networks || law)", title="distance of networks"
    )
    shown = {
        "excess_kurtosis_finite": (SERIES[2] | {"ls": "none"}, "networks, width 1024"),
        "head_dim_excess_kurtosis_limit": (SERIES[1] | {"marker": None}, "law that keeps $n_H$"),
        "excess_kurtosis_limit": ({"color": "black", "ls": "-"}, "limit, $n_H$ infinite"),
    }
    for name, (style, label) in shown.items():
        kurtosis.plot(dims, columns[name], **style, label=label)
    kurtosis.set(xscale="log", xlabel="head dimension $n_H$", ylabel="excess kurtosis", title="one head", ylim=(0, None))
    for axes in (kl, kurtosis):
        axes.set_xticks(dims, dims)
        axes.minorticks_off()
        axes.legend()
    return figure


if __name__ == "__main__":
    main("head_dim", compute, draw)
