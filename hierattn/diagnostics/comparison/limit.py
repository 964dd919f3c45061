"""Finite against limit: how far networks of a width are from the law of infinite width, for one token.

Errors here are standard errors; networks are the independent units everywhere. Distances between distributions of one token
are made of averaged Gaussians, never of a density estimate. The jackknife over batches of networks gives the standard error,
and the bias. A floor is what an estimate shows where there is nothing to see: taken off a KL, beside a total variation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from hierattn.base.errors import check_counts, unusable
from hierattn.diagnostics.comparison.gaussian import against_gaussian
from hierattn.diagnostics.comparison.token import MEAN_ABSOLUTE, TAILS, chosen, square_correlation_of
from hierattn.finite.collapsed import FiniteWidth
from hierattn.finite.inputs import RandomInputs
from hierattn.law.law import Law
from hierattn.law.marginal import Marginal, from_draws, jackknife_error
from hierattn.law.sampled import Sampled
from hierattn.layer.architecture import Architecture
from hierattn.numerics.mixtures import Nodes

REACH, POINTS = 14.0, 1401  # standard deviations, and points on the way, of integrals over y > 0


def compare(
    layer: Architecture,
    width: int,
    tokens: int | None = None,
    activation: Any = None,
    token: int | None = None,
    networks: int = 2**22,
    seed: int = 0,
    advance: Callable[[int], Any] | None = None,
    *,
    kernel: Any = None,
) -> dict[str, Any]:
    """Networks of this width against their limit, one token, as a flat record.

    Inputs are random (4 `tokens`, `activation` "clip"), or have this kernel as their Gram matrix. Without a token: the first of
    those that see most keys. The limit is that of width and head_dim; where head_dim is given, names with
    `head_dim_` before them compare with the law that keeps it. Those with `gaussian_` say how far that law is from the Gaussian
    of infinitely many heads.
    """
    finite_law, fixed_head_dim = _pair(layer, width, tokens, activation, kernel)
    token = chosen(token, layer, fixed_head_dim.shape)
    finite = from_draws(finite_law, token, networks, seed, advance)
    limit = fixed_head_dim.with_infinite_head_dim()
    record = {"token": token} | against_limit(finite, limit.marginal(token, seed=seed))
    if layer.head_dim is not None:
        closer = against_limit(finite, fixed_head_dim.marginal(token, seed=seed))
        record |= {f"head_dim_{name}": number for name, number in closer.items() if "finite" not in name}
    gaussian = against_gaussian(fixed_head_dim, token, seed=seed)
    return record | {f"gaussian_{name}": number for name, number in gaussian.items() if name != "token"}


def _pair(layer: Architecture, width: int, tokens: int | None, activation: Any, kernel: Any) -> tuple[Sampled, Law]:
    """The law of networks of a width, and the law for infinite width that keeps head_dim."""
    if kernel is None:
        law = FiniteWidth(
            layer, RandomInputs(width, 4 if tokens is None else tokens, "clip" if activation is None else activation)
        )
        return law, law.fixed_head_dim
    check_counts(width=width)
    if activation is not None:
        raise unusable("activation", "none with a kernel, which is that of the inputs", activation, "leave it out")
    wide = Law(layer, kernel)
    if tokens not in (None, wide.shape[1]):
        raise unusable("tokens", f"{wide.shape[1]}, as in the kernel", tokens, "leave it out")
    rank = wide.L_k.shape[-1]
    if width < rank:
        raise unusable("width", f"at least {rank}, the rank of the kernel", width, "inputs of that width have no such kernel")
    return Law(layer.at_width(width), kernel), wide


def against_limit(finite: Marginal, limit: Marginal) -> dict[str, Any]:
    """How far one distribution is from another: KL and total variation, quantiles, kurtosis, Kolmogorov's distance."""
    y = np.linspace(0, REACH, POINTS) * np.sqrt(limit.variance)
    f, F = limit.pdf(y), limit.cdf(y)
    step = y[1]

    def distances(nodes: Nodes) -> dict[str, float]:
        row = Marginal(Nodes(nodes.x[None], nodes.w[None]), "closed form")
        g = row.pdf(y)
        with np.errstate(divide="ignore", invalid="ignore"):
            divergence = np.where(g > 0, g * np.log(g / f), 0.0)
        found = {
            "kl": 2 * step * (divergence.sum() - divergence[0] / 2),
            "total_variation": step * (np.abs(g - f).sum() - np.abs(g[0] - f[0]) / 2),
            "ks_distance": np.abs(row.cdf(y) - F).max(),
            "variance_finite": row.variance,
            "excess_kurtosis_finite": row.excess_kurtosis,
            "square_correlation_finite": square_correlation_of(row.excess_kurtosis),
        }
        return found | {f"tail_ratio_{name}": row.isf(p / 2) / limit.isf(p / 2) for name, p in TAILS.items()}

    rows = [distances(Nodes(x, w)) for x, w in zip(*finite.nodes, strict=True)]
    record: dict[str, Any] = {}
    for name in rows[0]:
        values = np.array([row[name] for row in rows], float)
        everything, parts = values[0], values[1:]
        bias = float((len(parts) - 1) * (parts.mean() - everything)) if name == "kl" else 0.0
        record |= {name: float(everything - bias), f"{name}_error": float(jackknife_error(parts))}
        record |= {"kl_floor": bias} if name == "kl" else {}
    record["total_variation_floor"] = float(step * finite.standard_error("pdf", y).sum() * MEAN_ABSOLUTE)
    kurtosis = float(limit.excess_kurtosis)
    return record | {
        "variance_limit": float(limit.variance),
        "excess_kurtosis_limit": kurtosis,
        "square_correlation_limit": square_correlation_of(kurtosis),
    }
