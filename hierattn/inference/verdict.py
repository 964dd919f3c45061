"""Does a fit deserve belief? Convergence of the chains, and what the data say about each parameter."""

from collections.abc import Iterator
from typing import Any

import arviz
import numpy as np

from hierattn.base.reasons import reason

RHAT, ESS_A_CHAIN, EBFMI, DIVERGENCES = 1.01, 100, 0.3, 1e-3
SIGMA_RHAT, SIGMA_ENTRIES, SIGMA_RECORDS = 1.05, 500, 20  # entries looked at, at most; records of them, at least
FEWEST_DRAWS = 100  # that importance sampling can be asked about
PSENSE = 0.05  # sensitivity to the prior from which a posterior depends on it
PRIOR_WIDTH = 0.5  # of the prior's 90 % interval (in the logarithm) that a posterior interval covers if data say little


def entries(name: str, x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Entries (chain, draw) of a parameter (chain, draw, ...) with their names, but for those of arrays that never vary."""
    if x.ndim == 2:
        yield name, np.asarray(x, float)
        return
    for index in np.ndindex(x.shape[2:]):
        entry = np.asarray(x[(..., *index)], float)
        if varies(entry):  # not so: the diagonal of a correlation matrix, which is 1 up to rounding
            yield f"{name}[{','.join(map(str, index))}]", entry


def varies(x: np.ndarray) -> bool:
    """By more than rounding?"""
    return bool(np.ptp(x) > 1e-12 * np.abs(x).max())


def summary(draws: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Mean, sd, 90 % interval, R-hat, bulk and tail ESS of every entry of every parameter (chain, draw, ...).

    R-hat is NaN where it is not defined: one chain only, or chains that do not move, which have no effective draws either.
    """
    table = {}
    for name, x in (entry for each in draws.items() for entry in entries(*each)):
        low, high = np.quantile(x, [0.05, 0.95])
        moving = varies(x)
        table[name] = {
            "mean": float(x.mean()),
            "sd": float(x.std(ddof=1)),
            "eti90_lb": float(low),
            "eti90_ub": float(high),
            "rhat": float(arviz.rhat(x)) if moving else np.nan,
            "ess_bulk": float(arviz.ess(x, method="bulk")) if moving else 0.0,
            "ess_tail": float(arviz.ess(x, method="tail", prob=(0.05, 0.95))) if moving else 0.0,
        }
    return table


def convergence(draws: dict[str, np.ndarray], statistics: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Why these draws cannot be trusted; nothing if they can. The log density counts like a parameter."""
    table = summary(draws | {"log_density": statistics["lp"]})
    found, chains = [], statistics["lp"].shape[0]
    worst = max(table, key=lambda name: np.nan_to_num(table[name]["rhat"], nan=np.inf))
    rhat = table[worst]["rhat"]
    if np.isnan(rhat):
        found.append(reason("rhat", f"R-hat of {worst} is undefined: one chain only, or chains that do not move", rhat=rhat))
    elif rhat > RHAT:
        found.append(reason("rhat", f"chains disagree: R-hat of {worst} is {rhat:.3f}, more than {RHAT}", rhat=rhat))
    for name in ("ess_bulk", "ess_tail"):
        value = float(np.min(np.nan_to_num([row[name] for row in table.values()])))
        if value < ESS_A_CHAIN * chains:
            words = f"{name} is {value:.0f}, fewer than {ESS_A_CHAIN} a chain"
            found.append(reason("ess", f"too few effective draws: {words}", **{name: value}))
    share = float(np.mean(statistics["diverging"])) if "diverging" in statistics else 0.0
    if share > DIVERGENCES:
        found.append(reason("divergences", f"{share:.2%} of trajectories diverged", share=share))
    if "energy" in statistics:
        energy = statistics["energy"]
        moves, spread = np.square(np.diff(energy, axis=1)).mean(axis=1), energy.var(axis=1)
        ebfmi = float(np.divide(moves, spread, out=np.zeros_like(moves), where=spread > 0).min())
        if not ebfmi >= EBFMI:
            found.append(reason("ebfmi", f"energies hardly move: E-BFMI is {ebfmi:.2f}, less than {EBFMI}", ebfmi=ebfmi))
    return found


def of_Sigma(Sigma: np.ndarray | None) -> list[dict[str, Any]]:
    """Entries of conditional covariances (some of them, if there are many) whose chains disagree; a remark, not a verdict."""
    if Sigma is None or Sigma.shape[1] < SIGMA_RECORDS:
        return []
    i, j = np.tril_indices(Sigma.shape[-1])
    network, entry = np.divmod(np.arange(Sigma.shape[2] * len(i)), len(i))
    some = np.linspace(0, len(entry) - 1, min(len(entry), SIGMA_ENTRIES)).astype(int)
    looked_at = Sigma[:, :, network[some], i[entry[some]], j[entry[some]]]
    rhat = np.array([float(arviz.rhat(x)) for _, x in entries("Sigma", looked_at)])
    if not np.any(rhat > SIGMA_RHAT):
        return []
    share = float(np.mean(rhat > SIGMA_RHAT))
    message = f"{share:.1%} of the entries of Sigma have an R-hat above {SIGMA_RHAT} (worst {np.nanmax(rhat):.2f})"
    return [reason("sigma_rhat", message, share=share, worst=float(np.nanmax(rhat)))]


def identification(
    draws: dict[str, np.ndarray], prior: dict[str, np.ndarray], never: dict[str, str]
) -> tuple[dict[str, bool], list[dict[str, Any]]]:
    """Which entries of parameters the data inform: those whose 90 % interval is much shorter than the prior's.

    Lengths are those of the logarithm where parameters are positive. never: parameters that no data of this design could
    inform, with the reason.
    """
    identified: dict[str, bool] = {}
    found = []
    for name, x in draws.items():
        if name in never:
            identified |= dict.fromkeys((entry for entry, _ in entries(name, x)), False)
            found.append(reason("unidentified", f"{name} is not identified: {never[name]}"))
            continue
        before = dict(entries(name, prior[name])) if name in prior else {}
        ratios = {entry: _length_ratio(values, before[entry]) for entry, values in entries(name, x) if entry in before}
        identified |= {entry: ratio < PRIOR_WIDTH for entry, ratio in ratios.items()}
        if not all(identified[entry] for entry in ratios):
            entry = max(ratios, key=lambda entry: ratios[entry])
            message = f"{entry} is hardly informed by the data: its interval is {ratios[entry]:.0%} as long as the prior's"
            found.append(reason("prior_dominated", message, ratio=ratios[entry]))
    return identified, found


def sensitivity(tree: Any, names: list[str]) -> list[dict[str, Any]]:
    """Parameters whose posterior moves if their priors are raised to a power near 1 (Kallioinen et al. 2024), by ArviZ."""
    if not names or tree["posterior"].sizes["chain"] * tree["posterior"].sizes["draw"] < FEWEST_DRAWS:
        return []
    sensitive = arviz.psense(tree, var_names=names, group="prior", group_var_names=names)
    found = []
    for name in names:
        value = float(sensitive[name].max())
        if value > PSENSE:
            message = f"{name} depends on the prior: power-scaling sensitivity {value:.2f}, more than {PSENSE}"
            found.append(reason("prior_sensitive", message, sensitivity=value))
    return found


def _length_ratio(posterior: np.ndarray, prior: np.ndarray) -> float:
    """Length of a 90 % interval over that of the prior."""
    if min(posterior.min(), prior.min()) > 0:
        posterior, prior = np.log(posterior), np.log(prior)
    lengths = [float(np.ptp(np.quantile(x, [0.05, 0.95]))) for x in (posterior, prior)]
    return lengths[0] / lengths[1] if lengths[1] else np.inf
