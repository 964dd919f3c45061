"""One sweep of a chain, move by move: trajectories of all scores, parts of rows, lines of weights, both scales; and where chains begin."""
