"""Does a fit deserve belief? Convergence of the chains, and of the covariances they carry along."""

from collections.abc import Callable, Iterator
from typing import Any

import arviz
import numpy as np

from hierattn.base.reasons import reason
from hierattn.inference.arrays import symmetric

RHAT, ESS_A_CHAIN, EBFMI, DIVERGENCES = 1.01, 100, 0.3, 1e-3
SIGMA_RHAT, SIGMA_ENTRIES, SIGMA_RECORDS = 1.05, 500, 20  # entries looked at, at most; records of them, at least
Advice = Callable[[str], str]
Coded = tuple[dict[str, Any], str]  # a reason, and the code by which advice is asked


def entries(name: str, x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Entries (chain, draw) of a parameter (chain, draw, ...) with their names: none twice, and none of arrays that never vary.

    Of symmetric matrices those on the diagonal and above it.
    """
    if x.ndim == 2:
        yield name, np.asarray(x, float)
        return
    half = symmetric(x)
    for index in np.ndindex(x.shape[2:]):
        if half and index[-2] > index[-1]:
            continue
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


def convergence(
    draws: dict[str, np.ndarray], statistics: dict[str, np.ndarray], advice: Advice = lambda code: ""
) -> list[dict[str, Any]]:
    """Why these draws cannot be trusted, and what to do; nothing if they can. The log density counts like a parameter.

    - advice: what to do about "rhat", "ess", "divergences", "ebfmi" and "stuck", as the method says
    """
    table, chains = summary(draws | {"log_density": statistics["lp"]}), statistics["lp"].shape[0]
    found = [*_disagreement(table, chains), *_effective(table, chains), *_trajectories(statistics)]
    return [each | {"message": _with_advice(each["message"], told)} for each, code in found for told in [advice(code)]]


def _with_advice(message: str, advice: str) -> str:
    return f"{message}; {advice}" if advice else message


def _disagreement(table: dict[str, dict[str, float]], chains: int) -> Iterator[Coded]:
    """R-hat, where it is worst."""
    worst = max(table, key=lambda name: np.nan_to_num(table[name]["rhat"], nan=np.inf))
    rhat = table[worst]["rhat"]
    if np.isnan(rhat) and chains == 1:
        message = f"R-hat of {worst} is undefined: one chain only; run at least two"
        yield reason("rhat", message, rhat=rhat), "one chain"
    elif np.isnan(rhat):
        yield reason("rhat", f"R-hat of {worst} is undefined: chains do not move", rhat=rhat), "stuck"
    elif rhat > RHAT:
        message = f"chains disagree: R-hat of {worst} is {rhat:.3f}, more than {RHAT}"
        yield reason("rhat", message, rhat=rhat), "rhat"


def _effective(table: dict[str, dict[str, float]], chains: int) -> Iterator[Coded]:
    """Effective draws, where they are fewest."""
    for name in ("ess_bulk", "ess_tail"):
        value = float(np.min(np.nan_to_num([row[name] for row in table.values()])))
        if value < ESS_A_CHAIN * chains:
            message = f"too few effective draws: {name} is {value:.0f}, fewer than {ESS_A_CHAIN} per chain"
            yield reason("ess", message, **{name: value}), "ess" if value else "stuck"


def _trajectories(statistics: dict[str, np.ndarray]) -> Iterator[Coded]:
    """Divergences, and energies."""
    share = float(np.mean(statistics["diverging"])) if "diverging" in statistics else 0.0
    if share > DIVERGENCES:
        yield reason("divergences", f"{share:.2%} of trajectories diverged", share=share), "divergences"
    if "energy" in statistics:
        energy = statistics["energy"]
        moves, spread = np.square(np.diff(energy, axis=1)).mean(axis=1), energy.var(axis=1)
        ebfmi = float(np.divide(moves, spread, out=np.zeros_like(moves), where=spread > 0).min())
        if not ebfmi >= EBFMI:
            message = f"energies hardly move: E-BFMI is {ebfmi:.2f}, less than {EBFMI}"
            yield reason("ebfmi", message, ebfmi=ebfmi), "ebfmi"


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
