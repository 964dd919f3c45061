"""Every program of analysis/programs.py against its law: 20,000 networks of width 256 and 2,000 of width 1024 are not told from
it, 20,000 of width 16 are, and so is a law with one covariance dropped. The theorem's own sums approach their limits in two
programs; scores of heads that share W^K are uncorrelated, crossed matrices give the second term of Isserlis."""

from functools import partial

import jax
import numpy as np
import programs

from hierattn.finite import theorem
from hierattn.netsor.limit import Limit
from hierattn.netsor.simulate import simulate, stream
from hierattn.numerics.two_samples import two_samples
from tests.netsor.mutants import with_a_covariance_dropped
from tests.netsor.sharing import crossed, score_products
from tests.statistics import LEVEL, same_joint_law

SEED = 0
NETWORKS, COORDINATES = {16: 20_000, 64: 20_000, 256: 20_000, 1024: 2_000}, 2
LIMIT, WIDE = 100_000, (256, 1024)
NAMES = ("gate", "linear_attention", "cross_attention", "relu_attention", "recurrent", "shared_keys", "mlp_attention")
NAMES += ("residual_mlp", "attention")  # from two matrices to eight


def same(x: tuple, y: tuple) -> bool:
    """Scalars and outputs of two samples."""
    rng = np.random.default_rng(SEED)
    outputs = [np.asarray(z[1], float).reshape(len(z[1]), -1, COORDINATES) for z in (x, y)]
    scalars = [np.asarray(z[0], float)[..., None] for z in (x, y)]
    return same_joint_law(*outputs, rng) and (scalars[0].shape[1] == 0 or same_joint_law(*scalars, rng))


def against_law(name: str) -> dict:
    """A program at four widths."""
    program = getattr(programs, name)()
    law, key = Limit(program), jax.random.key(SEED)
    drawn, found = _drawn(law), {}
    for n, networks in NETWORKS.items():
        finite = simulate(jax.random.fold_in(key, n), program, n, networks, COORDINATES)
        record = two_samples(finite[1], drawn[1], SEED)
        found[f"p_value_{n}"] = record["p_value"]
        found[f"ks_distance_{n}"] = record["ks_distance"]
        found[f"same_{n}"] = same(finite, drawn) and record["p_value"] > LEVEL
        if n == 256:
            mutant, dropped = with_a_covariance_dropped(law)
            found |= {"mutant_rejected": not same(finite, _drawn(mutant)), "dropped": dropped}
    passed = all(found[f"same_{n}"] for n in NETWORKS if n in WIDE) and not found["same_16"] and found["mutant_rejected"]
    return {"passed": bool(passed), **found}


def _drawn(law: Limit) -> tuple:
    parts = [tuple(map(np.asarray, part)) for part in law.stream(jax.random.key(SEED + 1), LIMIT, COORDINATES)]
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def sums(name: str) -> dict:
    """(1/n) sum of psi(y_alpha) of every network against E[psi(y) | p]: distances fall with the width."""
    program, networks, psis = getattr(programs, name)(), 2000, theorem.psis()
    law, found = Limit(program), {}

    def average(y):
        return {psi: functions.average(y) for psi, functions in psis.items()}

    keys = [jax.random.key(SEED + 10 + k) for k in range(4)]
    limits = [jax.tree.map(np.asarray, law.expect(law.sample_scores(key, networks), average)) for key in keys]
    for n in (16, 64, 256):
        parts = [jax.tree.map(np.asarray, average(y)) for _, y in stream(jax.random.key(SEED), program, n, networks, n)]
        finite = {psi: np.concatenate([part[psi] for part in parts]).astype(float) for psi in psis}
        for psi, (distance, floor) in theorem.distances(finite, limits).items():
            found[f"{psi} {n}"], found[f"{psi} floor"] = distance, floor
    passed = all(found[f"{psi} 16"] > 1.5 * found[f"{psi} 64"] > 1.5 * found[f"{psi} 256"] for psi in psis)
    return {"passed": bool(passed), "networks": networks, **found}


def sharing() -> dict:
    """Products of scores at width 256, 20,000 networks, against both terms of Isserlis."""
    found: dict = {"passed": True}
    for name, program in {"shared W^K": programs.shared_keys(), "crossed": crossed()}.items():
        gap, error, largest, without = score_products(program, 256, 20_000, SEED)
        found |= {f"{name}: largest gap / error": gap, f"{name}: error": error, f"{name}: across heads": largest}
        found["passed"] &= bool(gap < 5 and (name == "shared W^K" or without > 20))
    return found


CASES = {"shared matrices": sharing}
CASES |= {f"sums of {name}": partial(sums, name) for name in ("cross_attention", "linear_attention")}
CASES |= {f"{name} against its law": partial(against_law, name) for name in NAMES}
