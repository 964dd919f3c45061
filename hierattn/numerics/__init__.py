"""Mathematics alone: random numbers, quasi-Monte Carlo, Wishart matrices, mixtures, softmax integrals, two-sample tests."""
