"""Array shapes in signatures are checked while tests run, and only then."""

import os

from jaxtyping import install_import_hook

from tests import shapes

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")  # halves compile times, which are most of the suite

CHECKED = ("architecture", "activations", "kernels", "wishart", "sampling", "law", "joint_moments", "moments", "distributions")
CHECKED += ("inputs", "network", "one_token", "collapsed", "theorem", "mixtures", "token_law")
install_import_hook([f"hierattn.{name}" for name in CHECKED], f"{shapes.__name__}.check_arrays")
