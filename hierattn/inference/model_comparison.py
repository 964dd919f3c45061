"""Which model predicts a network best that it has not seen? Leave-one-network-out (PSIS-LOO) through ArviZ.

Scores are integrated out: the likelihood of a network given scores fitted to that very network would say nothing about others.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hierattn.base.errors import InputError
from hierattn.base.reasons import reason
from hierattn.inference.calling import MODELS
from hierattn.inference.course.budget import Budget, budget_of
from hierattn.inference.fitting import fit, layer_of
from hierattn.layer.architecture import Architecture
from hierattn.observed.observations import Observations, read

if TYPE_CHECKING:
    from xarray import DataTree

KHAT = 0.7  # beyond it the network matters too much for importance sampling
BLUR = 0.5  # of an elpd's standard error that integration may add


class Ranking(NamedTuple):
    """Rows {model, elpd, elpd_error, difference, ...}, the best model first; why others are missing; and all fits."""

    rows: list[dict[str, Any]]
    reasons: list[dict[str, Any]]
    fits: "dict[str, DataTree]"


class Ranked(NamedTuple):
    """A row of a ranking, and the log density of every network left out."""

    row: dict[str, Any]
    pointwise: np.ndarray


def compare_models(
    observations: Observations | str | Path,
    layer: Architecture | None = None,
    models: tuple[str, ...] = MODELS,
    *,
    width: int | None = None,
    seed: int = 0,
    chains: int = 4,
    budget: Budget | float | str | None = None,
    advance: Callable[[str, int], Any] = lambda model, done: None,
) -> Ranking:
    """Fit models to the same outputs and rank them by the expected log density of a new network.

    Rows of the ranking hold:

    - `elpd`, `elpd_error`: its estimate, and standard error over networks
    - `difference`, `difference_error`: to the best model
    - `integration_error`: what integrating the scores out adds
    - `khat`: largest Pareto k over networks

    budget: seconds, or words like "20m", for all models: each has its share of what is left. A model that does not converge in
    its share, or for which there is time with fewer networks only, is not ranked; None for no limit

    advance: called with a model's name and the number of draws of each chain just done, 0 when its fit begins
    """
    observations = read(observations) if isinstance(observations, (str, Path)) else observations
    layer = layer or layer_of(observations)
    ranked: dict[str, Ranked] = {}
    fits, reasons, limit = {}, [], budget_of(budget)
    began = limit.clock()
    for k, name in enumerate(models):
        advance(name, 0)
        left = (limit.seconds - (limit.clock() - began)) / (len(models) - k)
        how: dict[str, Any] = {
            "width": width,
            "seed": seed,
            "chains": chains,
            "budget": replace(limit, seconds=max(left, 1e-3)),
        }
        try:
            fits[name] = fit(observations, name, layer, **how, advance=partial(advance, name))
        except InputError as refused:
            reasons.append(reason("not_applicable", f"{name}: {refused}"))
            continue
        found = left_out(fits[name], observations.networks)
        if isinstance(found, str):
            reasons.append(reason("untrusted", f"{name} is not ranked: {found}"))
        else:
            ranked[name] = found
    rows = [{"model": name, **found.row} for name, found in ranked.items()]
    rows.sort(key=lambda row: -row["elpd"])
    for row in rows:
        gap = ranked[rows[0]["model"]].pointwise - ranked[row["model"]].pointwise
        row |= {"difference": float(gap.sum()), "difference_error": float(np.sqrt(len(gap)) * gap.std())}
    return Ranking(rows, reasons, fits)


def left_out(tree: "DataTree", networks: int) -> Ranked | str:
    """What a fit to so many networks predicts of those left out of it; or why it has no place in a ranking."""
    import arviz

    why = untrusted(tree, networks)
    if why is not None:
        return why
    loo = arviz.loo(tree, pointwise=True)
    khat = float(np.max(loo.pareto_k))
    error = np.asarray(tree["log_likelihood"].attrs["integration_error"], float)
    blur = float(np.sqrt(np.sum(np.broadcast_to(error, loo.n_data_points) ** 2)))
    if khat > KHAT:
        return f"its largest Pareto k is {khat:.2f}, more than {KHAT}"
    if blur > BLUR * loo.se:
        return f"integration blurs its elpd by {blur:.1f}"
    row = {"elpd": float(loo.elpd), "elpd_error": float(loo.se), "integration_error": blur, "khat": khat}
    return Ranked(row, np.asarray(loo.elpd_i))


def untrusted(tree: "DataTree", networks: int) -> str | None:
    """Why a fit has no place in a ranking."""
    if tree.attrs["verdict"] != "CONVERGED":
        return "its fit did not converge"
    if "log_likelihood" not in tree.children:
        return "its log likelihood was not computed"
    fitted = tree["log_likelihood"].sizes["network"]
    return None if fitted == networks else f"there was time for {fitted:,} of {networks:,} networks only; give a longer budget"
