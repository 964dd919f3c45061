"""Do outputs, or a fit, follow the law? Statistics of networks, tests by simulation, departures, power, a verdict."""
