"""Effective samples a second of the default fit, against the plain explicit model.

    python analysis/benchmarks/fit.py [NETWORKS TOKENS HEADS COORDINATES]

Against NumPyro's NUTS on models/limit_law.py with all outputs, and, where PyMC and nutpie are installed (extra `benchmark`),
against nutpie on the same model. The smaller of the two parameters' bulk ESS, over the time of sampling; compilation and
warm-up apart, and beside it. Four chains on all cores, float64.
"""

import sys
import time
from importlib.util import find_spec
from pathlib import Path

import arviz
import jax
import numpy as np
from timing import record

from hierattn import Architecture, Law, Observations
from hierattn.inference import fitting
from hierattn.inference.methods import networkwise, nuts
from hierattn.inference.methods.protocol import Run
from hierattn.inference.methods.sweeps import sweep as sweeps
from hierattn.inference.problem import pose

ROOT = Path(__file__).parent.parent.parent
CHAINS, SEED, USUAL = 4, 0, (50, 4, 2, 16)
jax.config.update("jax_enable_x64", True)


def effective(draws: dict) -> float:
    """The smaller bulk ESS."""
    return min(float(arviz.ess(np.asarray(draws[name]))) for name in ("score_scale", "value_scale"))


def report(name: str, draws: dict, seconds: float, before: float) -> float:
    """A line, and ESS a second."""
    rate = effective(draws) / seconds
    means = ", ".join(f"{np.mean(draws[name]):.4f}" for name in ("score_scale", "value_scale"))
    print(f"  {name:28s} {rate:8.2f} ESS/s; {seconds:6.1f} s of sampling after {before:5.1f} s; means {means}", flush=True)
    return rate


def default(observations: Observations, layer: Architecture, number: int = 3000) -> float:
    """Network by network."""
    problem = pose(observations, layer, fitting.lookup("limit_law"), None)
    prior = sweeps.Prior(problem.prior["score_scale"], problem.prior["value_scale"], observations.scale)
    start, times = time.perf_counter(), []

    def enough(draws) -> bool:
        times.append((time.perf_counter(), draws.log_q.shape[1]))
        return draws.log_q.shape[1] >= number

    drawn = networkwise.Networkwise().sample_until(problem.data(), prior, Run(SEED, CHAINS), enough)
    (first, skipped), (last, _) = times[0], times[-1]
    draws = {
        "score_scale": np.exp(drawn.log_q[:, skipped:]),
        "value_scale": np.exp(drawn.log_o[:, skipped:]) * observations.scale,
    }
    return report("hierattn, networkwise", draws, last - first, first - start)


def plain(observations: Observations, layer: Architecture, number: int = 200) -> float:
    """NumPyro's NUTS over parameters and scores, from all outputs."""
    method = nuts.Nuts()
    problem = pose(observations, layer, fitting.lookup(str(ROOT / "models" / "limit_law.py")), None)
    start, times = time.perf_counter(), []

    def enough(draws: dict, statistics: dict) -> bool:
        times.append(time.perf_counter())
        return draws["score_scale"].shape[1] >= number + method.chunk

    draws, statistics = method.sample_until(problem, Run(SEED, CHAINS), enough)
    kept = {name: x[:, method.chunk :] for name, x in draws.items()}
    print(f"    {statistics['n_steps'].mean():.0f} steps a draw")
    return report("NumPyro, explicit model", kept, times[-1] - times[0], times[0] - start)


def nutpie(observations: Observations, heads: int, number: int = 300) -> float:
    """The same model in PyMC, sampled by nutpie."""
    import nutpie
    import pymc as pm
    import pytensor.tensor as pt

    y, s = np.asarray(observations.outputs), observations.s
    with pm.Model() as model:
        score_scale = pm.LogNormal("score_scale", 0.0, 1.0)
        value_scale = pm.LogNormal("value_scale", np.log(observations.scale), 1.0)
        E = pm.Normal("E", shape=(len(y), heads, s, s))
        A = pm.math.softmax(score_scale * E, axis=-1)
        Sigma = value_scale**2 * pt.sum(pt.matmul(A, A.swapaxes(-1, -2)), axis=1) / heads
        L = pt.linalg.cholesky(Sigma)
        z = pt.matmul(pt.linalg.inv(L), y)
        logdet = pt.sum(pt.log(pt.diagonal(L, axis1=-2, axis2=-1)))
        pm.Potential("y", -pt.sum(z**2) / 2 - y.shape[-1] * logdet)
    start = time.perf_counter()
    compiled = nutpie.compile_pymc_model(model)
    nutpie.sample(compiled, draws=1, tune=1, chains=1, seed=SEED, progress_bar=False)
    middle = time.perf_counter()
    both = nutpie.sample(compiled, draws=number, tune=400, chains=CHAINS, cores=2, seed=SEED, progress_bar=False)
    seconds = (time.perf_counter() - middle) * number / (number + 400)
    draws = {name: both["posterior"][name].values for name in ("score_scale", "value_scale")}
    return report("PyMC + nutpie, same model", draws, seconds, middle - start)


def main() -> None:
    """One design."""
    networks, tokens, heads, coordinates = design = tuple(map(int, sys.argv[1:5])) or USUAL
    layer, K = Architecture(heads=heads), np.eye(tokens)
    outputs = np.asarray(Law(layer, K).sample(jax.random.key(SEED), networks, coordinates))
    observations = Observations(outputs, kernel=K, heads=heads)
    print(f"(networks, tokens, heads, coordinates) = {design}, {CHAINS} chains")
    ours, theirs = default(observations, layer), plain(observations, layer)
    ratios = {"ours / NumPyro's": ours / theirs}
    print(f"  ratio to NumPyro {ours / theirs:.1f}")
    if find_spec("nutpie") is None or find_spec("pymc") is None:
        print("  PyMC and nutpie are not installed: pip install '.[benchmark]' for the third line")
    else:
        ratios["ours / nutpie's"] = ours / nutpie(observations, heads)
        print(f"  ratio to nutpie {ratios["ours / nutpie's"]:.1f}")
    if design == USUAL:
        record("fit", ratios)


main()
