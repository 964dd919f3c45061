"""Observations and a model -> posterior, as an ArviZ DataTree."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hierattn.base.errors import check_counts, unusable
from hierattn.base.files.writing import check_new, whole_file
from hierattn.base.float64 import in_float64
from hierattn.base.reasons import reason
from hierattn.inference.calling import MODELS, lookup
from hierattn.inference.checkpoints import Checkpoint
from hierattn.inference.methods.protocol import Method, Run
from hierattn.inference.methods.registry import choose_method, method_of
from hierattn.inference.problem import Posterior, Problem, pose
from hierattn.layer.architecture import Architecture
from hierattn.observed.observations import Observations, read

if TYPE_CHECKING:
    from xarray import DataTree

__all__ = ["MODELS", "check_density", "choose_method", "fit", "layer_of", "lookup", "plan", "pose", "route"]
KERNEL_KNOWN = ("limit_law", "finite_head_dim", "infinite_heads", "linear_scaling")
GAUSSIAN_SCORES = ("limit_law", "linear_scaling", "kernel_unknown", "separate_kernels")  # of infinite head_dim
FACTORS = {"score_scale": ("sigma_q", "sigma_k"), "value_scale": ("sigma_v", "sigma_o")}


class Plan(NamedTuple):
    """What a fit will do: the problem, the method and why that, and what is to be said beforehand."""

    problem: Problem
    method: Method
    why: str
    remarks: tuple[dict[str, Any], ...]


def fit(
    observations: Observations | str | Path,
    model: str | Path = "limit_law",
    layer: Architecture | None = None,
    *,
    method: str | Method | tuple[Method, ...] = "auto",
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

    What it takes, by name:

    - `observations`: outputs, and the kernel of their inputs if it is known; or the path of a file of them.
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
    - `out`: netCDF file to write; beside it a folder keeps an unfinished run, and with `resume` a killed one goes on.
    - `advance`: called with the number of draws of each chain just done.

    The tree holds the groups posterior, sample_stats, prior, log_prior, prior_predictive and posterior_predictive (outputs of
    new networks), log_likelihood (network by network), observed_data and constant_data; where scores were sampled also
    conditional_posterior (the covariance Sigma of each observed network) and conditional_predictive. Its attributes say the
    verdict, the reasons for it with what to do, how it was made, and a table of the parameters (JSON).

    One draw of a chain that samples scores costs some networks x heads x tokens^2 x kernel tokens operations (times some ten
    steps of a trajectory), whatever the number of coordinates; `moments` and one token's `marginal` cost seconds in any case.

    """
    check_counts(chains=chains)
    if out is not None:
        check_new(out, force)
    planned = plan(observations, model, layer, method=method, prior=prior)
    settings = {"seed": seed, "chains": chains, "width": width} | planned.method.settings() | planned.problem.settings()
    kept = None if out is None else Checkpoint(f"{out}.resume", settings, resume)
    result = carry_out(planned, Run(seed, chains, width, kept, advance), log_likelihood)
    if out is not None and kept is not None:
        with whole_file(out, force) as temporary:
            result.to_netcdf(temporary, engine="h5netcdf")
        kept.remove()
    return result


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
    problem = pose(observations, layer, lookup(model), prior)
    check_scales(problem)
    check_density(problem)
    return Plan(problem, *choose_method(problem, method), tuple(remarks))


def carry_out(planned: Plan, run: Run, log_likelihood: bool) -> "DataTree":
    """Sample, and tell."""
    from hierattn.inference import tree  # ArviZ and xarray take a while to load

    problem, method, why, remarks = planned
    found = in_float64(method.sample)(problem, run)
    found = found._replace(reasons=(*remarks, *found.reasons))
    return tree.assemble(tree.Fitted(problem, method, why, found), run, log_likelihood)


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
