"""Generative models of attention outputs, one file each, to be read like the law itself.

Every file has `priors(scale)`, the prior of each parameter for outputs of root mean square `scale`, and `model(...)`, a NumPyro
program. In all of them a draw of the outputs is the site `y` under the plates `network` and `coordinate`, event (token,).
The scales of the layer that a model is given do not matter: they are the parameters `score_scale` and `value_scale`.
"""

# loaded whole before its parts are: ArviZ leaves a lazy module behind, whose parts would be loaded twice
from numpyro import handlers  # noqa: F401

# names of all axes, for arviz.from_numpyro(..., dims=DIMS)
DIMS = {
    "y": ["coordinate", "network", "token"],
    "p": ["network", "head", "query", "key"],
    "Sigma": ["token", "token_"],
    "K": ["token", "token_"],
    "K_scores": ["token", "token_"],
    "K_values": ["token", "token_"],
}
