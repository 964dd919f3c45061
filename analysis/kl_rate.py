"""KL(width n || law) of one token falls as 1/n^2, and a kernel density estimate cannot see it.

Two heads, four tokens, clip inputs. Averaging Gaussians over networks (Rao and Blackwell) follows the KL down to 1e-6; the
estimate from 50,000 outputs and a kernel density, the published one, flattens at its own floor.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from plotting import SEED, SERIES, gaussian, main, trials

from hierattn import Architecture, FiniteWidth, RandomInputs

WIDTHS, NETWORKS, SAMPLES, TRIALS = (16, 32, 64, 128, 256, 512, 1024, 2048), 2**21, 50_000, 2


def kde_divergence(y: np.ndarray, limit, grid: np.ndarray) -> float:
    """KL between a kernel density estimate (Gaussian, Scott's width) and the law."""
    width = y.std(ddof=1) * len(y) ** -0.2
    p, q = np.array([gaussian(point - y, width).mean() for point in grid]), limit.pdf(grid)
    return float(np.sum(p * np.log(p / q)) * (grid[1] - grid[0]))


def compute(quick: bool) -> dict:
    """KL of every width by both estimators, and the second one's floor: the law against itself."""
    found, widths = {}, WIDTHS[::3] if quick else WIDTHS
    networks, samples, count = (2**17, 5_000, 1) if quick else (NETWORKS, SAMPLES, TRIALS)
    rng = np.random.default_rng(SEED)
    limit = FiniteWidth(Architecture(heads=2), RandomInputs(1)).limit.marginal()
    for n in widths:
        law = FiniteWidth(Architecture(heads=2), RandomInputs(n))
        record = trials(law, limit, networks // 10)
        grid = np.linspace(-4.5, 4.5, 181) * np.sqrt(limit.variance)
        kde = []
        for t in range(count):
            v = np.asarray(law.sample_variances(jax.random.key(SEED + 1 + t), samples), float)
            kde.append(kde_divergence(np.sqrt(v) * rng.normal(size=samples), limit, grid))
        found[str(n)] = {"kl": record["kl"], "kl_error": record["kl_error"], "kde": kde}
    v = np.asarray(law.limit.sample_variances(jax.random.key(SEED), samples * count), float).reshape(count, -1)
    floor = [kde_divergence(np.sqrt(row) * rng.normal(size=samples), limit, grid) for row in v]
    return {"widths": found, "kde_floor": floor, "networks": networks, "samples": samples}


def draw(results: dict) -> plt.Figure:
    """KL, and n^2 KL."""
    figure, (kl, scaled) = plt.subplots(1, 2, figsize=(9, 3.6))
    widths = np.array([int(n) for n in results["widths"]])
    values, errors = (np.array([run[name] for run in results["widths"].values()]) for name in ("kl", "kl_error"))
    kde = np.array([run["kde"] for run in results["widths"].values()])
    kl.errorbar(widths, values, errors, **SERIES[3] | {"ls": "-"}, capsize=2, label="averaged Gaussians")
    kl.plot(widths, kde.mean(axis=1), **SERIES[1], label=f"kernel density, {results['samples']:,} outputs")
    kl.axhline(np.mean(results["kde_floor"]), color="#888888", ls=":", label="the law itself by kernel density")
    kl.set(xscale="log", yscale="log", xlabel="width $n$", ylabel="KL(width $n$ || law)", title="two estimates of one distance")
    kl.legend()
    scaled.errorbar(widths, widths**2 * values, widths**2 * errors, **SERIES[3] | {"ls": "-"}, capsize=2)
    scaled.set(xscale="log", xlabel="width $n$", ylabel="$n^2$ KL", title="it falls as $1/n^2$", ylim=(0, 13))
    for axes in (kl, scaled):
        axes.set_xticks(widths[::2], widths[::2])
        axes.minorticks_off()
    return figure


if __name__ == "__main__":
    main("kl_rate", compute, draw)
