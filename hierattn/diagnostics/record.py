"""A diagnosis as a flat record, as JSON has it: every number beside its error or interval; None where there is none."""

from typing import Any

import numpy as np

from hierattn.base.provenance import provenance
from hierattn.base.reasons import finite
from hierattn.diagnostics import testing, words
from hierattn.diagnostics.comparison import marginal_against_gaussian, tails
from hierattn.diagnostics.departures.registry import TESTED
from hierattn.diagnostics.judgement import Judgement
from hierattn.diagnostics.subject import scales_of

HEAD_DIM = 64  # usual in real models: what it changes is shown beside a law of infinite head_dim


def of_judgement(judged: Judgement) -> dict[str, Any]:
    """Verdict and reasons first, then what was looked at, tests, power, kurtosis and tails, and where it all comes from."""
    subject, y = judged.subject, judged.outputs
    obs, law = subject.observations, subject.law
    record: dict[str, Any] = {
        "consistent": judged.consistent,
        "reasons": judged.reasons,
        "next_steps": words.next_steps(judged),
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
    record |= of_scales(judged) | of_tests(judged)
    observed = tails.kurtosis(y, judged.seed)
    record |= {f"excess_kurtosis_{name}": x.tolist() for name, x in observed.items()}
    if law is not None:
        record |= of_law(judged)
    for name, check in judged.predictive.items():
        key = f"predictive_{slug(name)}"
        record |= {key: finite(check.observed), f"{key}_p_value": check.p_value}
    return record | {"outputs_sha256": obs.sha256} | provenance(judged.seed)


def slug(name: str) -> str:
    """A name as a key."""
    return "_".join("".join(c if c.isalnum() else " " for c in name).split())


def of_scales(judged: Judgement) -> dict[str, Any]:
    """The law's scales, one number or one for each head where heads differ; estimated ones with their standard error."""
    subject = judged.subject
    if subject.law is None:
        return {}
    record: dict[str, Any] = {"heads": subject.law.layer.heads, "head_dim": subject.law.layer.head_dim}
    for name, value in scales_of(subject.law.layer).items():
        record[name] = value.tolist() if np.ndim(value) else value
        record[f"{name}_error"] = float(subject.draws[name].std()) if name in subject.free else 0.0
    return record


def of_tests(judged: Judgement) -> dict[str, Any]:
    """P-values, corrected for the number of tests, and the power behind them."""
    found = judged.examination
    if found is None:
        return {}
    record: dict[str, Any] = {"level": testing.LEVEL, "tests": len(found.p_values)}
    record |= {f"p_{name}": found.corrected.get(name) for name in TESTED}
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
    if "pairing" in found.p_values:
        record |= {
            "pairing_observed": float(found.seen.pairing),
            "pairing_law": float(found.at.mean.pairing),
            "pairing_law_error": float(found.drawn.pairing.std()),
        }
    return record | {f"power_{name}": power for name, power in judged.powers.items()}


def of_law(judged: Judgement) -> dict[str, Any]:
    """Kurtosis and tails under the law, token by token, and whether a Gaussian would do for the first of the tokens."""
    law, seen, found, tokens = judged.subject.law, judged.marginals, judged.tails, judged.tokens
    record: dict[str, Any] = {"tokens_looked_at": tokens}
    record["excess_kurtosis_law"] = [finite(float(one.excess_kurtosis)) for one in seen]
    if law is not None and law.L_k.ndim == 2 and law.layer.head_dim is None:
        real = type(law).from_factors(law.layer.replace(head_dim=HEAD_DIM), law.L_k, law.L_q)
        record[f"excess_kurtosis_head_dim_{HEAD_DIM}"] = real.moments(tokens[0], judged.seed).excess_kurtosis
    for row in found.exceedances if found is not None else []:
        name = f"exceedance_{row['percent']:g}".replace(".", "_")
        record |= {name: row["observed"], f"{name}_low": row["low"], f"{name}_high": row["high"]}
        record |= {f"{name}_gaussian": row["gaussian"], f"{name}_bound": row["bound"]}
    gaussian = marginal_against_gaussian(seen[0], float(seen[0].variance), judged.outputs.shape[2])
    record |= {"gaussian_token": tokens[0]} | {f"gaussian_{name}": value for name, value in gaussian.items()}
    return record | {"networks_needed_one_token": gaussian["networks_needed"]}
