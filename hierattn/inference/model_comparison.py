"""Which model predicts a network best that it has not seen? Leave-one-network-out (PSIS-LOO) through ArviZ.

Scores are integrated out: the likelihood of a network given scores fitted to that very network would say nothing about others.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hierattn.base.errors import InputError
from hierattn.base.reasons import reason
from hierattn.inference.fitting import MODELS, fit, layer_of
from hierattn.layer.architecture import Architecture
from hierattn.observed.observations import Observations

if TYPE_CHECKING:
    from xarray import DataTree

KHAT = 0.7  # beyond it the network matters too much for importance sampling
BLUR = 0.5  # of an elpd's standard error that integration may add


class Ranking(NamedTuple):
    """Rows {model, elpd, elpd_error, difference, ...}, the best model first; why others are missing; and all fits."""

    rows: list[dict[str, Any]]
    reasons: list[dict[str, Any]]
    fits: "dict[str, DataTree]"


def compare_models(
    observations: Observations,
    layer: Architecture | None = None,
    models: tuple[str, ...] = MODELS,
    *,
    width: int | None = None,
    seed: int = 0,
    chains: int = 4,
) -> Ranking:
    """Fit models to the same outputs and rank them by the expected log density of a new network.

    elpd, elpd_error              its estimate, and standard error over networks
    difference, difference_error  to the best model
    integration_error             what integrating the scores out adds
    khat                          largest Pareto k over networks
    """
    import arviz

    layer = layer or layer_of(observations)
    fits, pointwise, reasons = {}, {}, []
    rows: list[dict[str, Any]] = []
    for name in models:
        try:
            fits[name] = fit(observations, name, layer, width=width, seed=seed, chains=chains)
        except InputError as refused:
            reasons.append(reason("not_applicable", f"{name}: {refused}"))
            continue
        why = untrusted(fits[name])
        if why is None:
            loo = arviz.loo(fits[name], pointwise=True)
            khat = float(np.max(loo.pareto_k))
            error = np.asarray(fits[name]["log_likelihood"].attrs["integration_error"], float)
            blur = float(np.sqrt(np.sum(np.broadcast_to(error, loo.n_data_points) ** 2)))
            why = f"its largest Pareto k is {khat:.2f}, more than {KHAT}" if khat > KHAT else None
            why = f"integration blurs its elpd by {blur:.1f}" if why is None and blur > BLUR * loo.se else why
        if why is not None:
            reasons.append(reason("untrusted", f"{name} is not ranked: {why}"))
            continue
        pointwise[name] = np.asarray(loo.elpd_i)
        rows.append(
            {"model": name, "elpd": float(loo.elpd), "elpd_error": float(loo.se), "integration_error": blur, "khat": khat}
        )
    rows.sort(key=lambda row: -row["elpd"])
    for row in rows:
        gap = pointwise[rows[0]["model"]] - pointwise[row["model"]]
        row |= {"difference": float(gap.sum()), "difference_error": float(np.sqrt(len(gap)) * gap.std())}
    return Ranking(rows, reasons, fits)


def untrusted(tree: "DataTree") -> str | None:
    """Why a fit has no place in a ranking."""
    if tree.attrs["verdict"] != "CONVERGED":
        return "its fit did not converge"
    return None if "log_likelihood" in tree.children else "its log likelihood was not computed"
