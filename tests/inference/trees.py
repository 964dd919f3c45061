"""What every fit must be like, whatever it found."""

import json

import numpy as np
import pytest

GROUPS = {"posterior", "sample_stats", "posterior_predictive", "prior", "prior_predictive", "log_prior"}
GROUPS |= {"observed_data", "constant_data"}
CONDITIONAL = {"conditional_posterior", "conditional_predictive"}


def codes(result):
    return [found["code"] for found in json.loads(result.attrs["reasons"])]


def check(result, groups):
    """All groups, no NaN, JSON without NaN, and a verdict that agrees with its reasons."""
    assert set(result.children) == groups
    for name, group in result.children.items():
        for variable, values in group.data_vars.items():
            assert values.dtype.kind in "UTO" or np.all(np.isfinite(np.asarray(values, float))), f"{name}: {variable}"
    for name in ("reasons", "parameters", "identified"):
        json.loads(result.attrs[name], parse_constant=pytest.fail)
    failed = {"rhat", "ess", "divergences", "ebfmi"} & set(codes(result))
    assert result.attrs["verdict"] == ("NOT CONVERGED" if failed else "CONVERGED")
    return result
