"""Routes from observations to a posterior; `fit` chooses one."""

# loaded whole before its parts are: ArviZ leaves a lazy module behind, whose parts would be loaded twice
from numpyro import handlers  # noqa: F401
