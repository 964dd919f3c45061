"""One sweep of a chain, move by move: trajectories, parts of rows, lines of weights, both scales; and where chains begin."""
