"""Generative models of attention outputs, one file each, to be read like the law itself.

Every file has `model(...)`, a NumPyro program, and `priors(scale, kernel)`, the prior of each parameter for outputs of root
mean square `scale` and a kernel K whose diagonal has the mean `kernel` (`priors(scale)` where K is not given but inferred). In
all of them a draw of the outputs is the site `y` under the plates `network` and `coordinate`, event (token,). The scales of the
layer that a model is given do not matter: they are the parameters `score_scale` and `value_scale`.
"""

# loaded whole before its parts are: ArviZ leaves a lazy module behind, whose parts would be loaded twice
from numpyro import handlers  # noqa: F401

_TOKENS, _FACTOR = ["token", "token_"], ["token", "rank"]

# names of all axes, for arviz.from_numpyro(..., dims=DIMS)
DIMS = {
    "y": ["coordinate", "network", "token"],
    "p": ["network", "head", "query", "key"],
    "p_base": ["network", "head", "query_factor", "key_factor"],
    "E": ["network", "head", "query_factor", "head_coordinate"],
    "B": ["network", "group", "key_factor", "head_coordinate_"],
    "D": ["network", "group", "key_factor", "head_coordinate_"],
    "Sigma": _TOKENS,
    "K": _TOKENS,
    "K_scores": _TOKENS,
    "K_values": _TOKENS,
    "L": _FACTOR,
    "L_scores": _FACTOR,
    "L_values": _FACTOR,
}
