"""Posteriors of the law's parameters: problem, methods, verdict, fit, model comparison, calibration."""

# loaded whole before its parts are: ArviZ leaves a lazy module behind, whose parts would be loaded twice
from numpyro import handlers  # noqa: F401
