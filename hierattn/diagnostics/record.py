"""A diagnosis as a flat record, as JSON has it: every number beside its error or interval; None where there is none."""

from typing import TYPE_CHECKING, Any

import numpy as np

from hierattn.base.provenance import provenance
from hierattn.base.reasons import finite
from hierattn.diagnostics import tails, testing
from hierattn.diagnostics.comparison import networks_needed

if TYPE_CHECKING:
    from hierattn.diagnostics.diagnosis import Diagnosis

TESTS = ("scale", "score_scale", "kernel", "spread", "within", "normalised")


def of_diagnosis(diagnosis: "Diagnosis") -> dict[str, Any]:
    """Verdict and reasons first, then what was looked at, tests, power, kurtosis and tails, and where it all comes from."""
    subject, y = diagnosis.subject, diagnosis.outputs
    obs, law = subject.observations, subject.law
    record: dict[str, Any] = {
        "consistent": diagnosis.consistent,
        "reasons": diagnosis.reasons,
        "source": obs.source,
        "networks": obs.networks,
        "networks_used": len(y),
        "tokens": obs.s,
        "coordinates": obs.coordinates,
        "coordinates_used": y.shape[2],
        "law": None if law is None else repr(law),
        "scales": subject.origin,
    }
    if subject.tree is not None:
        record |= {f"fit_{name}": str(subject.tree.attrs[name]) for name in ("model", "method", "verdict")}
    record |= of_scales(diagnosis) | of_tests(diagnosis)
    observed = tails.kurtosis(y, diagnosis.seed)
    record |= {f"excess_kurtosis_{name}": x.tolist() for name, x in observed.items()}
    if law is not None:
        record |= of_law(diagnosis)
    for name, check in diagnosis.predictive.items():
        key = f"predictive_{slug(name)}"
        record |= {key: finite(check.observed), f"{key}_p_value": check.p_value}
    return record | {"outputs_sha256": obs.sha256} | provenance(diagnosis.seed)


def slug(name: str) -> str:
    """A name as a key."""
    return "_".join("".join(c if c.isalnum() else " " for c in name).split())


def of_scales(diagnosis: "Diagnosis") -> dict[str, Any]:
    """The law's scales; estimated ones with their standard error."""
    subject = diagnosis.subject
    if subject.law is None:
        return {}
    record: dict[str, Any] = {"heads": subject.law.layer.heads, "head_dim": subject.law.layer.head_dim}
    for name in ("score_scale", "value_scale"):
        record[name] = float(np.ravel(getattr(subject.law.layer, name))[0])
        record[f"{name}_error"] = float(subject.draws[name].std()) if name in subject.free else 0.0
    return record


def of_tests(diagnosis: "Diagnosis") -> dict[str, Any]:
    """P-values, corrected for the number of tests, and the power behind them."""
    found = diagnosis.examination
    if found is None:
        return {}
    record: dict[str, Any] = {"level": testing.LEVEL, "tests": len(found.p_values)}
    record |= {f"p_{name}": found.corrected.get(name) for name in TESTS}
    record |= {
        "spread_observed": float(found.seen.spread),
        "spread_law": float(found.at.mean.spread),
        "spread_law_error": float(found.drawn.spread.std()),
        "within_observed": float(found.seen.within),
        "within_law": float(found.at.mean.within),
        "within_law_error": float(found.drawn.within.std()),
        "evenness_observed": float(found.seen.evenness),
        "evenness_law": float(found.at.mean.evenness),
    }
    return record | {f"power_{name}": power for name, power in diagnosis.powers.items()}


def of_law(diagnosis: "Diagnosis") -> dict[str, Any]:
    """Kurtosis and tails under the law."""
    law, seen, found = diagnosis.subject.law, diagnosis.marginals, diagnosis.tails
    record: dict[str, Any] = {"excess_kurtosis_law": [finite(float(one.excess_kurtosis)) for one in seen]}
    if law is not None and law.L_k.ndim == 2 and law.layer.head_dim is None:
        real = type(law).from_factors(law.layer.replace(head_dim=64), law.L_k, law.L_q)
        record["excess_kurtosis_head_dim_64"] = real.moments(0, diagnosis.seed).excess_kurtosis
    for row in found.exceedances if found is not None else []:
        name = f"exceedance_{row['percent']:g}".replace(".", "_")
        record |= {name: row["observed"], f"{name}_low": row["low"], f"{name}_high": row["high"]}
        record |= {f"{name}_gaussian": row["gaussian"], f"{name}_bound": row["bound"]}
    needed = networks_needed(seen[0], float(seen[0].variance), diagnosis.outputs.shape[2])
    return record | {"networks_needed_one_token": needed}
