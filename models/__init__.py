"""Generative models of attention outputs, one file each, to be read like the law itself.

Every file has `priors(scale)`, the prior of each parameter for outputs of root mean square `scale`, and `model(...)`, a NumPyro
program. In all of them a draw of the outputs is the site `y` under the plates `network` and `coordinate`, event (token,).
"""
