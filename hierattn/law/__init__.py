"""The distribution of one wide layer's outputs: scores, covariance, sampling, moments, marginals, NumPyro distributions."""
