"""One sweep of a chain, move by move: trajectories of all scores, lines of attention weights, both scales."""
