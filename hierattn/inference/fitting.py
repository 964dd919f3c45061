"""Observations and a model -> posterior, as an ArviZ DataTree."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np

from hierattn.base.errors import check_counts, unusable
from hierattn.base.files.writing import check_new, whole_file
from hierattn.base.float64 import in_float64
from hierattn.base.reasons import reason
from hierattn.inference.calling import MODELS, lookup
from hierattn.inference.checkpoints import Checkpoint, networks_begun
from hierattn.inference.course.budget import Budget, budget_of
from hierattn.inference.course.layers import Layers, Several, fit_layers, named_layers
from hierattn.inference.course.pace import Pace
from hierattn.inference.course.routes import TooLongError, judge, some_networks
from hierattn.inference.course.watching import HEADS, Calling, Watch
from hierattn.inference.integration import heads
from hierattn.inference.methods.protocol import Method, Run
from hierattn.inference.methods.registry import ASKED, AUTO, choose_method, method_of
from hierattn.inference.problem import Posterior, Problem, pose
from hierattn.layer.architecture import Architecture
from hierattn.observed.observations import Observations, read

if TYPE_CHECKING:
    from xarray import DataTree

__all__ = ["MODELS", "check_density", "choose_method", "fit", "layer_of", "lookup", "plan", "pose", "route"]
KERNEL_KNOWN = ("limit_law", "finite_head_dim", "infinite_heads", "linear_scaling")
GAUSSIAN_SCORES = ("limit_law", "linear_scaling", "kernel_unknown", "separate_kernels")  # of infinite head_dim
FACTORS = {"score_scale": ("sigma_q", "sigma_k", "qk_gain"), "value_scale": ("sigma_v", "sigma_o")}


class Plan(NamedTuple):
    """What a fit will do: the problem, the method and why that, and what is to be said beforehand."""

    problem: Problem
    method: Method
    why: str
    remarks: tuple[dict[str, Any], ...]
    prior: dict[str, Any] | None = None  # as it was given


@overload
def fit(observations: Observations | str | Path, *arguments: Any, **options: Any) -> "DataTree": ...
@overload
def fit(observations: Several, *arguments: Any, **options: Any) -> Layers: ...
def fit(
    observations: Observations | str | Path | Several,
    model: str | Path = "limit_law",
    layer: Architecture | None = None,
    *,
    method: str | Method | tuple[Method, ...] = "auto",
    prior: dict[str, Any] | None = None,
    width: int | None = None,
    chains: int = 4,
    seed: int = 0,
    log_likelihood: bool = True,
    try_heads: tuple[int, ...] | Literal["auto"] | None = None,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    budget: Budget | float | str | None = None,
    advance: Callable[[int], Any] | Watch = lambda done: None,
) -> "DataTree | Layers":
    """The posterior of a model's parameters, given outputs of attention layers.

    What it takes, by name:

    - `observations`: outputs, and the kernel of their inputs if it is known; or the path of a file of them. A list of these, or
      a dict by name, is several layers, fitted one after the other: the result has `rows` (a table) and `fits` by name, `out`
      is a folder, the budget that of all; a layer that fails does not stop the others. Files in a list may have an axis layer.
    - `model`: a name of hierattn.models, or the path of a .py file with a function `model`. That is a NumPyro program of
      `outputs`, `networks` and `coordinates`, and of any of `layer`, `K`, `query_kernel`, `tokens`, `prior`, `width`, which are
      given by name; it draws the site `y` under the plates `network` and `coordinate` (see models/limit_law.py). A function
      `priors(scale, kernel)` beside it gives the prior of each parameter, for outputs of root mean square `scale` and a kernel
      whose diagonal has the mean `kernel`.
    - `layer`: heads, mask, ...; from the observations if they know it. Its scales are inferred, one for all heads.
    - `method`: "networkwise" (the law, chains network by network), "nuts" (any model), "marginal" (scores integrated out:
      on a grid for one token, by importance sampling for several with few coordinates), "moments" (estimates with bootstrap
      errors), or "auto"; also a method with settings of its own, such as `Networkwise(most_draws=50_000)`.
    - `prior`: distributions in place of the model's own, by parameter.
    - `width`: of the networks, for the model linear_scaling.
    - `log_likelihood`: of every network with its scores integrated out, which model comparison needs?
    - `try_heads`: other numbers of heads, to be compared with the given one by the evidence of each network; "auto" for half
      and twice as many where nothing describes the layer and that costs little; None for these only if chains do not converge.
    - `out`: netCDF file to write; beside it a folder keeps an unfinished run, and with `resume` a killed one goes on.
    - `budget`: seconds, or words like "5m", for the whole fit; None for no limit. Where it is too short "auto" fits fewer
      networks or takes moments, a method asked for refuses, and chains that run out of it end NOT CONVERGED, to be resumed; the
      reason with the code `budget` says what it changed.
    - `advance`: called with the number of draws of each chain just done; or a `Watch`, who is told more.

    The tree holds the groups posterior, sample_stats, prior, log_prior, prior_predictive and posterior_predictive (outputs of
    new networks), log_likelihood (network by network), observed_data and constant_data; where scores were sampled also
    conditional_posterior (the covariance Sigma of each observed network) and conditional_predictive. Its attributes say the
    verdict, the reasons for it with what to do, how it was made, and a table of the parameters (JSON).

    One draw of a chain that samples scores costs some networks x heads x tokens^2 x kernel tokens operations (times some ten
    steps of a trajectory), whatever the number of coordinates; `moments` and one token's `marginal` cost seconds in any case.

    """
    check_counts(chains=chains)
    if isinstance(observations, (list, tuple, Mapping)):
        how: dict[str, Any] = {"method": method, "prior": prior, "width": width, "chains": chains, "seed": seed}
        one = partial(fit, model=model, layer=layer, log_likelihood=log_likelihood, try_heads=try_heads, **how)
        where: dict[str, Any] = {"out": out, "force": force, "resume": resume, "budget": budget, "advance": advance}
        return fit_layers(named_layers(observations, _observations), one, **where)
    limit = budget_of(budget)
    if out is not None:
        check_new(out, force)
    planned = plan(observations, model, layer, method=method, prior=prior)
    if resume and limit.seconds < np.inf:
        planned = as_begun(planned, out)
    watch = advance if isinstance(advance, Watch) else Calling(advance)
    heads.check(planned.problem, try_heads if isinstance(try_heads, tuple) else ())
    course = Course(watch, limit, Run(seed, chains, width), out, resume, log_likelihood, try_heads)
    result, kept, stopped = within_budget(planned, course)
    if out is not None:
        with whole_file(out, force) as temporary:
            result.to_netcdf(temporary, engine="h5netcdf")
        if kept is not None and not stopped:
            kept.remove()
    return result


class Course(NamedTuple):
    """How a fit runs: who looks on, in what time, with which randomness, where it is kept, and what is computed."""

    watch: Watch
    limit: Budget
    run: Run
    out: str | Path | None
    resume: bool
    log_likelihood: bool
    try_heads: tuple[int, ...] | Literal["auto"] | None


def as_begun(planned: Plan, out: str | Path | None) -> Plan:
    """The plan with as many networks as the unfinished run has: a budget may have made them fewer."""
    begun = networks_begun(f"{out}.resume")
    if planned.why == ASKED or begun is None or not 1 <= begun < planned.problem.observations.networks:
        return planned
    return some_networks(planned, begun, "as when the run began, ")


def within_budget(planned: Plan, how: Course) -> "tuple[DataTree, Checkpoint | None, bool]":
    """The fit, by another route if it would take longer than its budget; also what is kept of it, and whether time ended it."""
    kept = _kept(planned, how)
    begun = 0 if kept is None else kept.chunks
    late = partial(judge, planned)
    pace = Pace(how.watch, planned.method, how.limit, kept=kept is not None, chunks=begun, late=late)
    pace.starts(planned.problem)
    try:
        return carry_out(planned, how.run.watched(kept, pace), how), kept, pace.stopped
    except TooLongError as given_up:
        planned = given_up.plan
    if kept is not None:
        kept.remove()
    kept, how = None, how._replace(resume=False)
    how.watch.say(next(each["message"] for each in planned.remarks if each["code"] == "budget"))
    if planned.method.sampled:
        kept = _kept(planned, how)
    pace = Pace(how.watch, planned.method, how.limit, began=pace.began, kept=kept is not None)
    pace.starts(planned.problem)
    return carry_out(planned, how.run.watched(kept, pace), how), kept, pace.stopped


def _kept(planned: Plan, how: Course) -> Checkpoint | None:
    """Where chunks of the run are kept."""
    if how.out is None:
        return None
    run = how.run
    settings = {"seed": run.seed, "chains": run.chains, "width": run.width} | planned.method.settings()
    return Checkpoint(f"{how.out}.resume", settings | planned.problem.settings(), how.resume)


def plan(
    observations: Observations | str | Path,
    model: str | Path = "limit_law",
    layer: Architecture | None = None,
    *,
    method: str | Method | tuple[Method, ...] = "auto",
    prior: dict[str, Any] | None = None,
) -> Plan:
    """What `fit` will do with these arguments, checked; nothing is sampled yet."""
    observations = _observations(observations)
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
    if layer.qk_norm is not None:
        message = "queries and keys are normed: score_scale is their gain g_q g_k, and outputs do not tell sigma_q and sigma_k"
        remarks.append(reason("gain", message))
    problem = pose(observations, layer, lookup(model), prior)
    check_scales(problem)
    check_density(problem)
    return Plan(problem, *choose_method(problem, method), tuple(remarks), prior)


def carry_out(planned: Plan, run: Run, how: Course) -> "DataTree":
    """Sample, and tell; then try other numbers of heads."""
    from hierattn.inference import tree  # ArviZ and xarray take a while to load

    problem, method, why, remarks, _ = planned
    found = in_float64(method.sample)(problem, run)
    found = found._replace(reasons=(*remarks, *found.reasons))
    result = tree.assemble(tree.Fitted(problem, method, why, found), run, how.log_likelihood)
    doubted = how.try_heads == AUTO or (how.try_heads is None and result.attrs["verdict"] != "CONVERGED")
    numbers = how.try_heads if isinstance(how.try_heads, tuple) else heads.unasked(problem) if doubted else ()
    if numbers and not (doubted and run.watch.over()):
        run.watch.phase(HEADS)
        place = tuple(float(np.exp(np.log(found.draws[name]).mean())) for name in ("score_scale", "value_scale"))
        rows = heads.compared(heads.try_heads(problem, numbers, place, run.seed + 5))
        told = [*json.loads(result.attrs["reasons"]), *heads.named(rows, problem.layer.heads)]
        result.attrs |= {"heads_tried": json.dumps(rows), "reasons": json.dumps(told)}
    return result


def _observations(given: Any) -> Observations:
    if isinstance(given, (str, Path)):
        return read(given)
    if not isinstance(given, Observations):
        expected = "Observations, or the path of a file of outputs"
        raise unusable("observations", expected, type(given).__name__, "make them with hierattn.Observations")
    return given


def layer_of(observations: Observations, head_dim: int | None = None) -> Architecture:
    """The layer that the observations speak of, which must say how many heads it has; a head_dim comes before theirs."""
    if observations.heads is None:
        raise unusable("heads", "the number of heads", "none", "give it: --heads, or heads= of the observations")
    layer = (observations.layer or Architecture(heads=observations.heads)).replace(mask=observations.mask)
    return layer if head_dim is None else layer.replace(head_dim=head_dim)


def check_scales(problem: Problem) -> None:
    """Refuse heads with scales of their own: one is inferred for all."""
    for product, factors in FACTORS.items():
        if np.ptp(getattr(problem.layer, product)) > 0:
            name = next(name for name in factors if np.ndim(getattr(problem.layer, name)))
            got = np.asarray(getattr(problem.layer, name)).tolist()
            raise unusable(name, "one value for all heads where scales are inferred", got, "give a layer with one")


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


@in_float64
def route(problem: Problem, method: str | Method, seed: int, chains: int, **more: Any) -> Posterior:
    """The posterior by one method, which must be able to; more: width, checkpoint, advance."""
    check_scales(problem)
    return choose_method(problem, method_of(method))[0].sample(problem, Run(seed, chains, **more))
