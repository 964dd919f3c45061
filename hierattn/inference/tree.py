"""A posterior as an ArviZ DataTree: parameters, predictions for new networks, likelihoods, priors, data, verdict."""

import json
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from hierattn.base.float64 import in_float64
from hierattn.base.provenance import provenance
from hierattn.base.reasons import finite, reason
from hierattn.inference import predictions
from hierattn.inference.arrays import in_lines, listed
from hierattn.inference.course import watching
from hierattn.inference.identifiability import identification, never_identified, of_design, sensitivity
from hierattn.inference.methods.protocol import Method, Run
from hierattn.inference.problem import Posterior, Problem
from hierattn.inference.verdict import convergence, of_Sigma, summary
from hierattn.layer import masks
from hierattn.layer.kernels import factor
from hierattn.layer.record import MASK, arrays_of
from hierattn.models import DIMS

LIKELIHOODS = 2**24  # numbers in the group of likelihoods: of more draws than that some are left out
SMALL = 16  # tokens up to which kappa is kept
Y, SIGMA = ["network", "token", "coordinate"], ["network", "token", "token_"]
NAMES = DIMS | {"y": Y, "kappa": ["token", "token_"], "kappa_prime_factor": ["token", "rank"]}


class Fitted(NamedTuple):
    """A problem, the method that was taken and why, and what it found."""

    problem: Problem
    method: Method
    why: str
    found: Posterior


def assemble(fitted: Fitted, run: Run, log_likelihood: bool) -> xr.DataTree:
    """All groups, and in the attributes the verdict."""
    problem, found, never = fitted.problem, fitted.found, never_identified(fitted.problem)
    draws = listed(found.draws)
    reasons = [each for each in found.reasons if each["code"] != "unidentified" or not never]  # said once
    prior = predictions.from_prior(problem, run.width, run.seed + 1)
    groups = groups_of(fitted, prior, run)
    if log_likelihood:
        value, error, lacking = likelihoods(fitted, run)
        reasons += lacking
        if value is not None:
            groups["log_likelihood"] = dataset({"y": value}, {"y": ["network"]})
            groups["log_likelihood"].attrs["integration_error"] = error
    not_converged = []
    if fitted.method.sampled:
        not_converged = convergence(draws, found.statistics, lambda code: fitted.method.advice(problem, code))
        late = run.watch.ended() if not_converged else None
        not_converged = [*([] if late is None else [late]), *not_converged]
    identified, remarks = identification(draws, prior, never)
    tree = xr.DataTree.from_dict(groups)
    reasons += [*not_converged, *remarks, *of_Sigma(found.Sigma), *of_design(problem)]
    reasons += sensitivity(tree, [str(name) for name in groups["log_prior"].data_vars])
    obs = problem.observations
    origin = {"model": problem.name, "method": found.method, "why": fitted.why}
    tree.attrs = provenance(run.seed, **origin, outputs_sha256=obs.sha256, source=obs.source)
    tree.attrs |= {"verdict": "NOT CONVERGED" if not_converged else "CONVERGED", "reasons": json.dumps(reasons)}
    tree.attrs |= {"identified": json.dumps(identified), "dtype": "float64"}
    rows = table(draws, identified)
    tree.attrs |= {"parameters": json.dumps(rows), "arrays": json.dumps(in_lines(parts_of(tree, draws), rows))}
    return tree


def groups_of(fitted: Fitted, prior: dict[str, np.ndarray], run: Run) -> dict[str, xr.Dataset]:
    """Posterior, prior, predictions and data."""
    problem, found = fitted.problem, fitted.found
    prior_y, y = predictions.new_networks(problem, [prior, found.draws], run.width, run.seed + 2)
    groups = {
        "posterior": dataset(found.draws | kernels_of(problem, found.draws)),
        "sample_stats": dataset(found.statistics),
        "prior": dataset(prior),
        "prior_predictive": dataset({"y": prior_y}),
        "posterior_predictive": dataset({"y": y}),
        "log_prior": dataset(predictions.log_prior(problem, found.draws)),
        "observed_data": xr.Dataset({"y": (Y, np.asarray(problem.observations.outputs[..., : y.shape[-1]], float))}),
        "constant_data": constants(problem),
    }
    if found.Sigma is not None:
        groups["conditional_posterior"] = dataset({"Sigma": found.Sigma}, {"Sigma": SIGMA})
        own = predictions.conditional(found.Sigma, y.shape[-1], run.seed + 3)
        groups["conditional_predictive"] = dataset({"y": own})
    return groups


def table(draws: dict[str, np.ndarray], identified: dict[str, bool]) -> dict[str, dict[str, Any]]:
    """The summary of every parameter, with whether the data inform it (None where that is not known)."""
    rows = {name: {key: finite(x) for key, x in row.items()} for name, row in summary(draws).items()}
    return {name: row | {"identified": identified.get(name)} for name, row in rows.items()}


def parts_of(tree: xr.DataTree, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters that are arrays, and kappa."""
    kappa = tree["posterior"].get("kappa")
    return {name: x for name, x in draws.items() if x.ndim > 2} | ({} if kappa is None else {"kappa": np.asarray(kappa)})


def dataset(variables: dict[str, np.ndarray], dims: dict[str, list[str]] | None = None) -> xr.Dataset:
    """Variables (chain, draw, ...) with named axes."""
    names = NAMES | (dims or {})

    def axes(name: str, x: np.ndarray) -> list[str]:
        rest = names.get(name, [])
        return ["chain", "draw", *(rest if len(rest) == x.ndim - 2 else [f"{name}_dim_{i}" for i in range(x.ndim - 2)])]

    return xr.Dataset({name: (axes(name, x), np.asarray(x)) for name, x in variables.items()})


def kernels_of(problem: Problem, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Kappa = value_scale^2 K, and the factor F of kappa' = (F F') x (F F'), F = sqrt(score_scale) L."""
    known = problem.observations.kernel
    if not {"score_scale", "value_scale"} <= set(draws):
        return {}
    q, o = (draws[name][..., None, None] for name in ("score_scale", "value_scale"))
    for K, L in (("K", "L"), ("K_values", "L_scores")):
        if {K, L} <= set(draws):
            return {"kappa": o**2 * draws[K], "kappa_prime_factor": np.sqrt(q) * draws[L]}
    if known is None or known.ndim == 3 or len(known) > SMALL:
        return {}
    return {"kappa": o**2 * known, "kappa_prime_factor": np.sqrt(q) * factor(known)}


@in_float64
def likelihoods(fitted: Fitted, run: Run) -> tuple[np.ndarray | None, Any, list[dict[str, Any]]]:
    """Log likelihood (chain, draw, network) with the scores integrated out, its error, and why it is lacking if it is."""
    networks, found = fitted.problem.observations.networks, fitted.found
    run.watch.phase(watching.LIKELIHOODS)
    lacking = run.watch.no_time()
    if lacking is not None:
        return None, None, [_no_likelihood(lacking)]
    every = -(-found.statistics["lp"].size * networks // LIKELIHOODS)
    thinned = found._replace(draws={name: x[:, ::every] for name, x in found.draws.items()})
    of_method = Run(run.seed + 4, run.chains, run.width)
    result = fitted.method.log_likelihood(fitted.problem, thinned, of_method)
    why = result if isinstance(result, str) else "particles did not reach the posterior of some network"
    if isinstance(result, str) or not np.all(np.isfinite(result.value)):
        return None, None, [_no_likelihood(why)]
    return result.value.reshape(*found.statistics["lp"][:, ::every].shape, networks), result.error, []


def _no_likelihood(why: str) -> dict[str, Any]:
    return reason("no_log_likelihood", f"log likelihoods with the scores integrated out were not computed: {why}")


def constants(problem: Problem) -> xr.Dataset:
    """What was known beforehand: the layer with all its fields (`layer.record`), kernel, observed tokens, sums of y y'.

    The mask is written out over the kernel's tokens, and head_dim is 0 where it is infinite.
    """
    obs, layer = problem.observations, problem.layer
    told = arrays_of(layer) | {"head_dim": np.asarray(layer.head_dim or 0)}
    told.pop(MASK, None)
    data: dict[str, Any] = {"tokens": ("token", obs.tokens), "coordinates": obs.coordinates, "S": (SIGMA, obs.S)}
    data |= {name: ([f"{name}_dim_{i}" for i in range(value.ndim)], value) for name, value in told.items()}
    axes = ["kernel_token", "kernel_token_"]
    if obs.kernel is not None:
        data["K"] = (axes if obs.kernel.ndim == 2 else ["network", *axes], obs.kernel)
    if obs.kernel is not None or layer.mask is not None:
        k = obs.s if obs.kernel is None else obs.kernel.shape[-1]
        data[MASK] = (axes, np.asarray(masks.allowed(layer.mask, k, k)).astype("int8"))
    return xr.Dataset(data)
