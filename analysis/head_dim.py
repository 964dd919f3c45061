"""The law of finite head dimension explains heads as narrow as 8 where the limit does not.

One head, four tokens, clip inputs, width 1024: what is left of the distance is the randomness of the inputs.
"""

import matplotlib.pyplot as plt
import numpy as np
from plotting import SEED, SERIES, main

from hierattn import Architecture, compare

HEAD_DIMS, WIDTH, NETWORKS = (8, 16, 32, 64, 128), 1024, 2**21
NAMES = ("kl", "kl_error", "head_dim_kl", "head_dim_kl_error", "excess_kurtosis_finite", "excess_kurtosis_finite_error")


def compute(quick: bool) -> dict:
    """KL and kurtosis for every head dimension."""
    found = {}
    for n_H in HEAD_DIMS[::4] if quick else HEAD_DIMS:
        record = compare(Architecture(head_dim=n_H), WIDTH, networks=2**14 if quick else NETWORKS, seed=SEED)
        names = (*NAMES, "excess_kurtosis_limit", "head_dim_excess_kurtosis_limit")
        found[str(n_H)] = {name: record[name] for name in names}
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
