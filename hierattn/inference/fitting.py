"""Observations and a model -> posterior, as an ArviZ DataTree. The one place that looks models up."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from hierattn.base.errors import InputError, check_counts, unusable
from hierattn.base.files.writing import check_new, whole_file
from hierattn.base.float64 import in_float64
from hierattn.base.loading import run_file
from hierattn.base.reasons import reason
from hierattn.inference.checkpoints import Checkpoint
from hierattn.inference.methods import networkwise, nuts
from hierattn.inference.problem import Posterior, Problem, pose
from hierattn.inference.verdict import convergence
from hierattn.layer.architecture import Architecture
from hierattn.observed.observations import Observations

if TYPE_CHECKING:
    from xarray import DataTree

MODELS = ("limit_law", "finite_head_dim", "infinite_heads", "linear_scaling", "kernel_unknown", "separate_kernels", "student_t")
METHODS = ("auto", "networkwise", "nuts", "marginal", "moments")
KERNEL_KNOWN = ("limit_law", "finite_head_dim", "infinite_heads", "linear_scaling")
GAUSSIAN_SCORES = ("limit_law", "linear_scaling", "kernel_unknown", "separate_kernels")  # of infinite head_dim
MOST_SWEEPS, MOST_DRAWS = 20_000, 2_000
MANY = 2**21  # latent numbers beyond which a posterior over scores takes too long
ROOM_FOR_SIGMA = 2**24  # numbers kept of conditional covariances


def fit(
    observations: Observations,
    model: str = "limit_law",
    layer: Architecture | None = None,
    *,
    method: str = "auto",
    prior: dict[str, Any] | None = None,
    width: int | None = None,
    chains: int = 4,
    seed: int = 0,
    log_likelihood: bool = True,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    advance: Callable[[int], Any] = lambda done: None,
) -> "DataTree":
    """The posterior of a model's parameters, given outputs of attention layers.

    observations    `Observations`: outputs, and the kernel of their inputs if it is known
    model           a name of hierattn.models, or the path of a file with a function `model`
    layer           heads, mask, ...; from the observations if they know it. Its scales do not matter: they are inferred
    method          how: "networkwise" (the limit law: exact, fast), "nuts" (any model), "marginal" (scores integrated out:
                    exactly for one token, by importance sampling for more of them, where coordinates are few), "moments"
                    (estimates with bootstrap errors), or "auto"
    prior           distributions in place of the model's own, by parameter (see `priors` in the model's file)
    width           of the networks, for the model linear_scaling
    log_likelihood  of every network with its scores integrated out, which model comparison needs
    out             netCDF file to write; beside it a folder keeps an unfinished run, and with resume=True a killed one goes on
    advance         called with the number of sweeps or draws just done
    """
    from hierattn.inference import tree  # ArviZ and xarray take a while to load

    check_counts(chains=chains)
    if out is not None:
        check_new(out, force)
    if method not in METHODS:
        raise unusable("method", "one of " + ", ".join(METHODS), repr(method))
    remarks = []
    if observations.kernel is None and model == "limit_law":
        model = "kernel_unknown"
        message = "no kernel and no inputs were given: K is inferred too, as a correlation matrix (model kernel_unknown)"
        remarks.append(reason("kernel_inferred", message))
    layer, described = layer or layer_of(observations), observations.layer
    if model == "limit_law" and layer.head_dim is not None and described is not None and layer.head_dim == described.head_dim:
        message = f"the model limit_law takes the described head_dim of {layer.head_dim} as infinite; finite_head_dim does not"
        remarks.append(reason("head_dim_infinite", message, head_dim=layer.head_dim))
        layer = layer.replace(head_dim=None, key_value_heads=None)
    problem = pose(observations, layer, lookup(model), prior)
    check_density(problem)
    chosen, why = choose_method(problem, method)
    settings = {"method": chosen, "seed": seed, "chains": chains, "width": width} | problem.settings()
    kept = None if out is None else Checkpoint(f"{out}.resume", settings, resume)
    found = route(problem, chosen, seed, chains, width, kept, advance)
    found = found._replace(reasons=(*remarks, *found.reasons))
    result = tree.assemble(problem, found, why, seed, width, log_likelihood)
    if out is not None and kept is not None:
        with whole_file(out, force) as temporary:
            result.to_netcdf(temporary, engine="h5netcdf")
        kept.remove()
    return result


def layer_of(observations: Observations, head_dim: int | None = None) -> Architecture:
    """The layer that the observations speak of, which must say how many heads it has; a head_dim comes before theirs."""
    if observations.heads is None:
        raise unusable("heads", "the number of heads", "none", "give it: --heads, or heads= of the observations")
    layer = (observations.layer or Architecture(heads=observations.heads)).replace(mask=observations.mask)
    return layer if head_dim is None else layer.replace(head_dim=head_dim)


def lookup(model: str) -> ModuleType:
    """A model's file: by name from hierattn.models, or by path."""
    if model in MODELS:
        return import_module(f"hierattn.models.{model}")
    path = Path(model)
    if path.suffix != ".py":
        raise unusable("model", "one of " + ", ".join(MODELS) + ", or a .py file", repr(model))
    module = run_file(path, "a function `model`")
    if not callable(getattr(module, "model", None)):
        raise InputError(f"{path}: expected a function `model`, got {', '.join(n for n in vars(module) if n[0] != '_')}")
    return module


def check_density(problem: Problem) -> None:
    """Refuse what has no density, and outputs that leave the subspace the kernel confines them to."""
    obs, head_dim = problem.observations, problem.layer.head_dim
    if head_dim is not None and problem.name in GAUSSIAN_SCORES:
        remedy = "use the model finite_head_dim" if problem.name == "limit_law" else ""
        raise unusable("head_dim", f"None for the model {problem.name}", head_dim, remedy)
    if obs.kernel is None or problem.name not in KERNEL_KNOWN:
        return
    if not np.any(problem.K):
        raise unusable("kernel", "inputs that are not zero", "K = 0", "outputs are then zero: there is nothing to fit")
    if problem.K.ndim == 3:
        return
    U = problem.basis
    if U is not None:
        off = np.einsum("mii->", obs.S) - np.einsum("it,mij,jt->", U, obs.S, U)
        if off > 1e-8 * np.einsum("mii->", obs.S):
            raise unusable(
                "outputs", "equal outputs for tokens with equal inputs", "outputs that differ", "is the kernel right?"
            )


def choose_method(problem: Problem, method: str) -> tuple[str, str]:
    """How to fit, and why so."""
    obs, layer = problem.observations, problem.layer
    K: Any = obs.kernel
    known = K is not None
    plain = known and layer.rotary is None and layer.scaling == "sqrt"
    one_token = obs.s == 1 and plain and K.ndim == 2 and problem.name in ("limit_law", "finite_head_dim")
    limit = plain and problem.name == "limit_law" and layer.head_dim is None
    size = obs.networks * layer.heads * obs.s * (K.shape[-1] if known else obs.s)
    can = {"nuts": True, "networkwise": limit, "marginal": one_token or limit, "moments": limit and K.ndim == 2}
    if method != "auto":
        if not can[method]:
            needs = {
                "networkwise": "the model limit_law with a known kernel",
                "marginal": "one observed token, or the model limit_law, and a known kernel",
                "moments": "the model limit_law with one known kernel",
            }
            raise unusable("method", f"{needs[method]} for {method}", f"{problem.name}, {obs.s} tokens", "use auto")
        return method, "asked for"
    if one_token:
        return "marginal", "one token: its scores can be integrated out exactly"
    if limit and size > MANY and can["moments"]:
        return "moments", f"{obs.networks} networks: too many for a posterior over their scores"
    if limit:
        return "networkwise", "the limit law with a known kernel: exact and fast"
    return "nuts", "no faster route for this model"


@in_float64
def route(
    problem: Problem,
    method: str,
    seed: int,
    chains: int,
    width: int | None = None,
    checkpoint: Checkpoint | None = None,
    advance: Callable[[int], Any] = lambda done: None,
) -> Posterior:
    """The posterior by one of the methods."""
    if method == "marginal":
        from hierattn.inference.methods import grid, importance

        return (grid.one_token if problem.observations.s == 1 else importance.several_tokens)(problem, seed, chains)
    if method == "moments":
        from hierattn.inference.methods.from_moments import by_moments

        return by_moments(problem, seed, chains)
    if method == "nuts":
        enough = lambda draws, statistics: (  # noqa: E731
            next(iter(draws.values())).shape[1] >= MOST_DRAWS or not convergence(draws, statistics)
        )
        draws, statistics = nuts.sample(problem, seed, chains, enough, width, checkpoint, advance)
        return Posterior(draws, statistics, method)
    prior = networkwise.Prior(problem.prior["score_scale"], problem.prior["value_scale"], problem.observations.scale)
    softmax = problem.layer.score_function == "softmax"
    data = problem.data()

    def enough_sweeps(draws: networkwise.Draws) -> bool:
        return draws.log_q.shape[1] >= MOST_SWEEPS or not convergence(*_named(draws, 1.0))

    drawn = networkwise.sample(data, prior, seed, chains, enough_sweeps, softmax, checkpoint, advance)
    draws, statistics = _named(drawn, problem.observations.scale)
    return Posterior(draws, statistics, method, _conditional(problem, drawn))


def _named(draws: networkwise.Draws, scale: float) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draws and statistics under their usual names, value_scale in the data's units."""
    networks = draws.Sigma.shape[-1]
    lp, acceptance, diverged = (np.asarray(x) for x in (draws.log_density, draws.acceptance, draws.diverged))
    parameters = {"score_scale": np.exp(draws.log_q), "value_scale": np.exp(draws.log_o) * scale}
    return parameters, {"lp": lp, "acceptance_rate": acceptance, "diverging": diverged / networks}


def _conditional(problem: Problem, draws: networkwise.Draws) -> np.ndarray:
    """Sigma of the observed networks, (chain, record, network, token, token), with as many records as there is room for."""
    thin = -(-draws.Sigma.size // ROOM_FOR_SIGMA)
    Sigma = np.moveaxis(draws.Sigma[:, ::thin], -1, 2) * problem.observations.scale**2
    return Sigma if problem.basis is None else problem.basis @ Sigma @ problem.basis.T
