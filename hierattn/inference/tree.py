"""A posterior as an ArviZ DataTree: parameters, predictions for new networks, likelihoods, priors, data, verdict."""

import json
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float
from numpyro.infer import Predictive

from hierattn.base.float64 import in_float64
from hierattn.base.provenance import provenance
from hierattn.base.reasons import finite, reason
from hierattn.inference import integrated, latents
from hierattn.inference.methods import nuts
from hierattn.inference.problem import Posterior, Problem
from hierattn.inference.verdict import convergence, identification, of_Sigma, sensitivity, summary
from hierattn.layer.kernels import factor
from hierattn.models import DIMS

PREDICTED = 2**22  # numbers in a predictive group
LIKELIHOODS = 2**24  # numbers in the group of likelihoods: of more draws than that some are left out
PRIOR_DRAWS = 1000
SMALL = 16  # tokens up to which kappa is kept


def assemble(problem: Problem, found: Posterior, why: str, seed: int, width: int | None, log_likelihood: bool) -> xr.DataTree:
    """All groups, and in the attributes the verdict."""
    obs, never = problem.observations, never_identified(problem)
    reasons = [found for found in found.reasons if found["code"] != "unidentified" or not never]  # said once
    posterior = found.draws | kernels_of(problem, found.draws)
    groups = {"posterior": dataset(posterior), "sample_stats": dataset(found.statistics)}
    prior = from_prior(problem, width, seed + 1)
    prior_y, y = new_networks(problem, [prior, found.draws], width, seed + 2)
    groups |= {"prior": dataset(prior), "prior_predictive": dataset({"y": prior_y}), "posterior_predictive": dataset({"y": y})}
    if found.Sigma is not None:
        groups["conditional_posterior"] = dataset({"Sigma": found.Sigma}, {"Sigma": ["network", "token", "token_"]})
        groups["conditional_predictive"] = dataset({"y": conditional(found.Sigma, y.shape[-1], seed + 3)})
    groups["log_prior"] = dataset(log_prior(problem, found.draws))
    if log_likelihood:
        value, error, lacking = likelihoods(problem, found, width, seed + 4)
        reasons += lacking
        if value is not None:
            groups["log_likelihood"] = dataset({"y": value}, {"y": ["network"]})
            groups["log_likelihood"].attrs["integration_error"] = error
    kept = y.shape[-1]
    groups["observed_data"] = xr.Dataset(
        {"y": (["network", "token", "coordinate"], np.asarray(obs.outputs[..., :kept], float))}
    )
    groups["constant_data"] = constants(problem)
    not_converged = convergence(found.draws, found.statistics) if found.method not in ("marginal", "moments") else []
    identified, remarks = identification(found.draws, prior, never)
    reasons += [*not_converged, *remarks, *of_Sigma(found.Sigma), *of_design(problem)]
    verdict = "NOT CONVERGED" if not_converged else "CONVERGED"
    tree = xr.DataTree.from_dict(groups)
    reasons += sensitivity(tree, [str(name) for name in groups["log_prior"].data_vars])
    tree.attrs = provenance(
        seed, model=problem.name, method=found.method, why=why, outputs_sha256=obs.sha256, source=obs.source
    )
    tree.attrs |= {"verdict": verdict, "reasons": json.dumps(reasons), "identified": json.dumps(identified)}
    tree.attrs |= {"parameters": json.dumps(table(found.draws, identified)), "dtype": "float64"}
    return tree


def table(draws: dict[str, np.ndarray], identified: dict[str, bool]) -> dict[str, dict[str, Any]]:
    """The summary of every parameter, with whether the data inform it (None where that is not known)."""
    rows = {name: {key: finite(x) for key, x in row.items()} for name, row in summary(draws).items()}
    return {name: row | {"identified": identified.get(name)} for name, row in rows.items()}


def dataset(variables: dict[str, np.ndarray], dims: dict[str, list[str]] | None = None) -> xr.Dataset:
    """Variables (chain, draw, ...) with named axes."""
    names = DIMS | {"y": ["network", "token", "coordinate"], "kappa": ["token", "token_"]} | (dims or {})
    names |= {"kappa_prime_factor": ["token", "rank"]}

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
def from_prior(problem: Problem, width: int | None, seed: int) -> dict[str, np.ndarray]:
    """Draws (1, draw, ...) of all parameters from the prior: from their distributions themselves, if they stand alone."""
    kwargs = nuts.arguments(problem, width, observed=False)
    parameters, _ = nuts.sites(problem, kwargs)
    rng_key, shape = jax.random.key(seed), (1, PRIOR_DRAWS)
    if set(parameters) == set(problem.prior):
        keys = jax.random.split(rng_key, len(parameters))
        return {name: np.asarray(problem.prior[name].sample(key, shape)) for name, key in zip(parameters, keys, strict=True)}
    few = kwargs | {"coordinates": 1, "networks": problem.observations.networks if problem.K_each else 1}
    drawn = Predictive(problem.model.model, num_samples=PRIOR_DRAWS, return_sites=parameters)(rng_key, **few)
    return {name: np.asarray(x)[None] for name, x in drawn.items()}


@in_float64
def new_networks(
    problem: Problem, parameters: list[dict[str, np.ndarray]], width: int | None, seed: int
) -> list[Float[np.ndarray, "chain draw network token coordinate"]]:
    """Outputs of as many new networks as were observed, with fresh scores, for each of some sets of draws (chain, draw, ...).

    Of as many draws and coordinates as there is room for; in one call, since what takes time is to compile it.
    """
    obs = problem.observations
    each = obs.networks * obs.s
    coordinates = int(np.clip(PREDICTED // (100 * each), 1, obs.outputs.shape[-1]))
    number = int(np.clip(PREDICTED // (each * coordinates), 20, 500))
    thinned, shapes = [], []
    for draws in parameters:
        chains, length = next(iter(draws.values())).shape[:2]
        pick = np.linspace(0, length - 1, min(length, max(1, number // chains))).astype(int)
        shapes.append((chains, len(pick)))
        thinned.append({name: x[:, pick].reshape(-1, *x.shape[2:]) for name, x in draws.items()})
    together = {name: np.concatenate([draws[name] for draws in thinned]) for name in thinned[-1]}
    kwargs = nuts.arguments(problem, width, observed=False) | {"coordinates": coordinates}
    y = Predictive(problem.model.model, together, return_sites=["y"])(jax.random.key(seed), **kwargs)["y"]
    y = np.moveaxis(np.asarray(y), 1, -1)  # draw, network, token, coordinate
    ends = np.cumsum([chains * length for chains, length in shapes])[:-1]
    return [part.reshape(*shape, *y.shape[1:]) for part, shape in zip(np.split(y, ends), shapes, strict=True)]


def conditional(Sigma: np.ndarray, coordinates: int, seed: int) -> np.ndarray:
    """Outputs of the observed networks themselves, given their conditional covariances."""
    every = max(1, Sigma[..., 0].size * coordinates // PREDICTED)
    values, vectors = np.linalg.eigh(Sigma[:, ::every])
    root = vectors * np.sqrt(values.clip(0))[..., None, :]
    return root @ np.random.default_rng(seed).normal(size=(*root.shape[:-1], coordinates))


def log_prior(problem: Problem, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Log density of the prior of every parameter that has one, at the draws."""
    known = {name: prior for name, prior in problem.prior.items() if name in draws and hasattr(prior, "log_prob")}
    with jax.enable_x64(True):
        return {name: np.asarray(prior.log_prob(draws[name])) for name, prior in known.items()}


@in_float64
def likelihoods(
    problem: Problem, found: Posterior, width: int | None, seed: int
) -> tuple[np.ndarray | None, Any, list[dict[str, Any]]]:
    """Log likelihood (chain, draw, network) with the scores integrated out, its error, and why it is lacking if it is."""
    networks, scale = problem.observations.networks, problem.observations.scale
    every = -(-found.statistics["lp"].size * networks // LIKELIHOODS)
    draws = {name: x[:, ::every] for name, x in found.draws.items()}
    shape = (*found.statistics["lp"][:, ::every].shape, networks)
    if found.method == "marginal" and problem.observations.s == 1:
        from hierattn.inference.methods.grid import log_likelihood

        value = log_likelihood(problem, draws["score_scale"].ravel(), draws["value_scale"].ravel())
        return np.asarray(value).reshape(shape), 0.0, []
    result = None
    if found.method in ("networkwise", "marginal"):
        data, softmax = problem.data(), problem.layer.score_function == "softmax"
        result = integrated.of_limit_law(
            data, draws["score_scale"].ravel(), draws["value_scale"].ravel() / scale, seed, softmax
        )
        units = problem.observations.coordinates * data.S.shape[0] * np.log(scale)
        result = result and result._replace(value=result.value - units)
    if found.method == "nuts":
        result = latents.integrated_likelihood(problem, draws, width, seed)
    if result is not None and np.all(np.isfinite(result.value)):
        return result.value.reshape(shape), result.error, []
    message = "log likelihoods with the scores integrated out were not computed: too many networks, or no posterior"
    return None, None, [reason("no_log_likelihood", message)]


def constants(problem: Problem) -> xr.Dataset:
    """What was known beforehand."""
    obs, layer = problem.observations, problem.layer
    data: dict[str, Any] = {"tokens": ("token", obs.tokens), "heads": layer.heads, "coordinates": obs.coordinates}
    data["head_dim"] = 0 if layer.head_dim is None else layer.head_dim
    data["S"] = (["network", "token", "token_"], obs.S)
    if obs.kernel is not None:
        axes = ["kernel_token", "kernel_token_"]
        data["K"] = (axes if obs.kernel.ndim == 2 else ["network", *axes], obs.kernel)
        k = obs.kernel.shape[-1]
        data["mask"] = (axes, np.asarray(layer.allowed(k, k)).astype("int8"))
    for name in ("key_value_heads", "rotary", "bias"):
        if (value := getattr(layer, name)) is not None:
            data[name] = ([f"{name}_dim_{i}" for i in range(np.ndim(value))], np.asarray(value))
    return xr.Dataset(data)


def never_identified(problem: Problem) -> dict[str, str]:
    """Parameters that outputs of this design cannot inform, whatever they are."""
    obs, layer = problem.observations, problem.layer
    if layer.score_function == "identity" and layer.bias is None:
        return dict.fromkeys(("score_scale", "value_scale"), "with identity scores only the product of both scales matters")
    if obs.kernel is None or "concentration" in problem.prior or layer.score_function != "softmax":  # K has a prior itself
        return {}
    K, k = obs.kernel, obs.kernel.shape[-1]
    allowed = np.asarray(layer.allowed(k, k))[obs.tokens]
    if np.all(allowed.sum(axis=1) == 1):
        return {"score_scale": "every observed token has one key, so that scores change nothing"}
    norms, one = np.diagonal(K, axis1=-2, axis2=-1), allowed.argmax(axis=1)
    apart = norms[..., None, :] + norms[..., one, None] - 2 * K[..., one, :]  # squared distance of keys from one of them
    if np.all(norms[..., obs.tokens, None] * apart * allowed <= 1e-12 * np.abs(K).max() ** 2):
        return {"score_scale": "every observed token has keys of the same inputs, so that scores change nothing"}
    return {}


def of_design(problem: Problem) -> list[dict[str, Any]]:
    """What these observations could not have shown."""
    M = problem.observations.networks
    if M == 1:
        message = "one network only: given its scores it is Gaussian, so that the hierarchy cannot be seen"
        return [reason("one_network", message, networks=1)]
    if M < 10:
        return [reason("few_networks", f"{M} networks only: the spread between networks is hardly seen", networks=M)]
    return []
