"""Figures of a fit, by ArviZ: chains, predictions, calibration of the posterior; and of several fits: which predicts best."""

import warnings
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from hierattn.reporting.figures import Panel
from hierattn.reporting.svg import INK, LAW, SEEN, STYLE, axes, beneath, plain, svg

if TYPE_CHECKING:
    from xarray import DataTree

FEW = 100  # predictive draws that are drawn
OBSERVED = 2000  # networks of a calibration plot, at most


def by_arviz(name: str, plot: Any, *arguments: Any, **options: Any) -> str:
    """A plot of ArviZ in the page's look."""
    import arviz
    from matplotlib import pyplot

    with mpl.rc_context(STYLE):
        drawn = getattr(arviz, plot)(*arguments, backend="matplotlib", **options)
        figure = drawn.viz["figure"].item()
        text = svg(figure, name)
        pyplot.close(figure)
    return text


def parameters(tree: "DataTree") -> list[str]:
    """Scalar parameters of a fit, those of the law first."""
    return [str(name) for name, x in tree["posterior"].data_vars.items() if x.ndim == 2]


def ranks(tree: "DataTree", table: dict[str, dict[str, Any]]) -> Panel:
    """Do the chains agree?"""
    names = parameters(tree)
    drawn = by_arviz("ranks", "plot_rank_dist", tree, var_names=names, figure_kwargs={"figsize": (7, 2 * len(names))})
    worst = max((row["rhat"] or np.inf for row in table.values()), default=np.inf)
    least = min((row["ess_bulk"] or 0 for row in table.values()), default=0)
    means = f"The largest R-hat is {worst:.3f}, the smallest effective sample {least:.0f}: {tree.attrs['verdict'].lower()}."
    alt = "Distributions of every parameter by chain, and fractional ranks of the chains' draws within bands."
    read = "Chains that found the same posterior lie on top of each other, their ranks inside the bands."
    return Panel("ranks", "Do the chains agree?", alt, read, means, drawn)


def predicted(tree: "DataTree") -> Panel:
    """Predicted against observed outputs."""
    y, new = (np.asarray(tree[group]["y"]) for group in ("observed_data", "posterior_predictive"))
    few = min(FEW, new.shape[0] * new.shape[1])
    colours = {"predictive_dist": {"color": LAW}, "observed_dist": {"color": SEEN}, "title": False}
    size = {"figsize": (5.2, 3.0)}
    drawn = by_arviz("predicted", "plot_ppc_dist", tree, num_samples=few, visuals=colours, figure_kwargs=size)
    seen, expected = float(np.sqrt(np.mean(y**2))), float(np.sqrt(np.mean(new**2)))
    means = f"Outputs have a root mean square of {seen:.4g}, predicted ones of {expected:.4g}."
    alt = "Density of the observed outputs among densities of predicted data sets."
    read = "Every thin line is a data set of new networks; the observed line should not stand out."
    return Panel("predicted", "Predicted outputs", alt, read, means, drawn)


def calibration(tree: "DataTree") -> Panel | None:
    """Leave-one-network-out probability integral transform of a network's log mean square."""
    if "log_likelihood" not in tree.children:
        return None
    pit = network_pit(tree)
    p = uniformity(pit)
    with axes(height=2.8) as (figure, ax):
        x = np.sort(pit)
        ax.plot([0, 1], [0, 0], color=LAW, label="calibrated")
        grid, band = np.linspace(0, 1, 101), 1.36 / np.sqrt(len(pit))
        ax.fill_between(grid, -band, band, color=LAW, alpha=0.2, lw=0, label="95 % band")
        ax.step(x, np.arange(1, len(x) + 1) / len(x) - x, where="post", color=SEEN, label=f"{len(pit)} networks")
        ax.set(xlabel="predicted probability of a smaller network", ylabel="observed share - predicted", xlim=(0, 1))
        beneath(figure)
        drawn = svg(figure, "calibration")
    verdict = "predictions are calibrated" if p > 0.01 else "predictions are not calibrated"
    means = f"Sizes of networks left out are uniform in their predictions with p = {p:.2g}: {verdict}."
    alt = "Difference between the empirical distribution of leave-one-out probabilities and the uniform one, with a band."
    read = "Each network's size is ranked among predictions made without it (PSIS-LOO); inside the band they are calibrated."
    return Panel("calibration", "Leave-one-network-out calibration", alt, read, means, drawn)


def network_pit(tree: "DataTree") -> np.ndarray:
    """P(a new network is smaller), without the network itself: posterior draws weighted by PSIS-LOO."""
    import arviz  # noqa: F401 - gives arrays their azstats

    new = np.asarray(tree["posterior_predictive"]["y"])
    size = np.log((new**2).mean(axis=(-2, -1)))  # chain, draw, network
    seen = np.log((np.asarray(tree["observed_data"]["y"]) ** 2).mean(axis=(-2, -1)))[:OBSERVED]
    ll = tree["log_likelihood"]["y"]
    pick = np.linspace(0, ll.sizes["draw"] - 1, new.shape[1]).astype(int)
    weights, _ = ll.azstats.psislw(dim=["chain", "draw"])
    w = np.exp(np.asarray(weights.transpose("chain", "draw", "network"))[:, pick])
    smaller = (size[..., None] <= seen).mean(axis=2)  # all new networks of a draw are alike
    return np.asarray((w[..., : len(seen)] * smaller).sum(axis=(0, 1)) / w[..., : len(seen)].sum(axis=(0, 1)))


def uniformity(pit: np.ndarray) -> float:
    """Kolmogorov-Smirnov's p-value."""
    from scipy import stats

    return float(stats.kstest(pit, "uniform").pvalue)


def ranking(fits: "dict[str, DataTree]") -> list[dict[str, Any]]:
    """Fits of the same outputs by the expected log density of a new network (PSIS-LOO), the best first."""
    import arviz

    usable = {name: tree for name, tree in fits.items() if "log_likelihood" in tree.children}
    if len(usable) < 2:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say, a large Pareto k, is in the table
        each = {name: arviz.loo(tree, pointwise=True) for name, tree in usable.items()}
        table = arviz.compare(each, round_to="none")
    numbers = ("elpd", "se", "dse", "weight")
    rows: list[dict[str, Any]] = []
    for name, row in table.iterrows():
        found = {key: float(row[key]) for key in numbers} | {"behind": -float(row["elpd_diff"])}
        found["khat"] = float(np.max(each[str(name)].pareto_k))
        rows.append({"model": str(name), "converged": usable[str(name)].attrs["verdict"] == "CONVERGED"} | found)
    return rows


def models(rows: list[dict[str, Any]]) -> Panel:
    """Differences of expected log densities."""
    x, y = np.array([-row["behind"] for row in rows]), np.arange(len(rows))[::-1]
    with axes(height=1.0 + 0.4 * len(rows)) as (figure, ax):
        ax.axvline(0, color=INK, lw=0.8, ls=":")
        ax.errorbar(x, y, xerr=[2 * row["dse"] for row in rows], fmt="o", color=SEEN, capsize=3)
        ax.set_yticks(y, [plain(row["model"]) for row in rows])
        ax.set(xlabel="expected log density minus the best model's (+- 2 standard errors)", ylim=(-0.6, len(rows) - 0.4))
        drawn = svg(figure, "models")
    best, second = rows[0], rows[1]
    clear = second["behind"] > 4 * second["dse"]
    words = "clearly" if clear else "but not clearly"
    gap = f"{second['model']} is {second['behind']:.1f} +- {second['dse']:.1f} behind"
    means = f"{best['model']} predicts new networks best, {words}: {gap}."
    alt = "Expected log predictive density of every model relative to the best, with standard errors."
    read = (
        "Further left is worse; a gap of several standard errors is a real one. Scores are integrated out, network by network."
    )
    return Panel("models", "Which model predicts new networks?", alt, read, means, drawn)
