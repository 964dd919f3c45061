"""Finite against limit, Gaussian against law, observed against law: distances of one token, each with its standard error."""

from hierattn.diagnostics.comparison.gaussian import against_gaussian, marginal_against_gaussian, networks_needed
from hierattn.diagnostics.comparison.limit import against_limit, compare
from hierattn.diagnostics.comparison.outputs import compare_outputs

__all__ = [
    "against_gaussian",
    "against_limit",
    "compare",
    "compare_outputs",
    "marginal_against_gaussian",
    "networks_needed",
]
