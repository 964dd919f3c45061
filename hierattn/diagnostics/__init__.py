"""Do outputs, or a fit, follow the law? Statistics of networks, tests by simulation, a verdict with reasons."""
