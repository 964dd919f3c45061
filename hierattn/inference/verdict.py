"""Does a fit deserve belief? Convergence of the chains, and what the data say about each parameter."""

from typing import Any

import arviz
import numpy as np

RHAT, ESS_A_CHAIN, EBFMI, DIVERGENCES = 1.01, 100, 0.3, 1e-3
SIGMA_RHAT = 1.05
PRIOR_WIDTH = 0.5  # of the prior's 90 % interval (in the logarithm) that a posterior interval covers if data say little


def reason(code: str, message: str, **numbers: float) -> dict[str, Any]:
    """One thing to know about a result."""
    return {"code": code, "message": message, "numbers": numbers}


def summary(draws: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Mean, sd, 90 % interval, R-hat, bulk and tail ESS of every entry of every parameter (chain, draw, ...)."""
    table = {}
    for name, x in draws.items():
        for index in np.ndindex(x.shape[2:]):
            entry = np.asarray(x[(..., *index)], float)
            if np.ptp(entry) == 0:  # the diagonal of a correlation matrix
                continue
            low, high = np.quantile(entry, [0.05, 0.95])
            table[name + (f"[{','.join(map(str, index))}]" if index else "")] = {
                "mean": float(entry.mean()),
                "sd": float(entry.std(ddof=1)),
                "eti90_lb": float(low),
                "eti90_ub": float(high),
                "rhat": float(arviz.rhat(entry)),
                "ess_bulk": float(arviz.ess(entry, method="bulk")),
                "ess_tail": float(arviz.ess(entry, method="tail", prob=(0.05, 0.95))),
            }
    return table


def convergence(draws: dict[str, np.ndarray], statistics: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Why these draws cannot be trusted; nothing if they can. The log density counts like a parameter."""
    table = summary(draws | {"log_density": statistics["lp"]})
    chains = statistics["lp"].shape[0]
    worst = dict.fromkeys(("ess_bulk", "ess_tail"), np.inf)
    found, rhat = [], max(row["rhat"] for row in table.values())
    for name in worst:
        worst[name] = min(row[name] for row in table.values())
    if not rhat <= RHAT:
        name = max(table, key=lambda name: table[name]["rhat"])
        found.append(reason("rhat", f"chains disagree: R-hat of {name} is {rhat:.3f}, more than {RHAT}", rhat=rhat))
    for name, value in worst.items():
        if not value >= ESS_A_CHAIN * chains:
            words = f"{name} is {value:.0f}, fewer than {ESS_A_CHAIN} a chain"
            found.append(reason("ess", f"too few effective draws: {words}", **{name: value}))
    share = float(np.mean(statistics["diverging"])) if "diverging" in statistics else 0.0
    if share > DIVERGENCES:
        found.append(reason("divergences", f"{share:.2%} of trajectories diverged", share=share))
    if "energy" in statistics:
        energy = statistics["energy"]
        ebfmi = float((np.square(np.diff(energy, axis=1)).mean(axis=1) / energy.var(axis=1)).min())
        if ebfmi < EBFMI:
            found.append(reason("ebfmi", f"energies hardly move: E-BFMI is {ebfmi:.2f}, less than {EBFMI}", ebfmi=ebfmi))
    return found


def of_Sigma(Sigma: np.ndarray | None) -> list[dict[str, Any]]:
    """Entries of conditional covariances whose chains disagree; a remark, not a verdict."""
    if Sigma is None or Sigma.shape[1] < 20:
        return []
    i, j = np.tril_indices(Sigma.shape[-1])
    entries = Sigma[..., i, j].reshape(*Sigma.shape[:2], -1)
    rhat = np.array([float(arviz.rhat(entries[..., e])) for e in range(entries.shape[-1])])
    if not rhat.max() > SIGMA_RHAT:
        return []
    share = float(np.mean(rhat > SIGMA_RHAT))
    message = f"{share:.1%} of the entries of Sigma have an R-hat above {SIGMA_RHAT} (worst {rhat.max():.2f})"
    return [reason("sigma_rhat", message, share=share, worst=float(rhat.max()))]


def identification(
    draws: dict[str, np.ndarray], prior: dict[str, np.ndarray], never: dict[str, str]
) -> tuple[dict[str, bool], list[dict[str, Any]]]:
    """Which positive parameters the data inform: those whose 90 % interval is much shorter than the prior's.

    never: parameters that no data of this design could inform, with the reason.
    """
    identified, found = {}, []
    for name, x in draws.items():
        if name in never:
            identified[name] = False
            found.append(reason("unidentified", f"{name} is not identified: {never[name]}"))
            continue
        if name not in prior:
            continue
        widths = [np.ptp(np.quantile(np.log(values), [0.05, 0.95])) for values in (x, prior[name])]
        ratio = float(widths[0] / widths[1])
        identified[name] = ratio < PRIOR_WIDTH
        if not identified[name]:
            message = f"{name} is hardly informed by the data: its interval is {ratio:.0%} as long as the prior's"
            found.append(reason("prior_dominated", message, ratio=ratio))
    return identified, found
