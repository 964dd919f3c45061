"""Routes from observations to a posterior; `fit` chooses one."""
