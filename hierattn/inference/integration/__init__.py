"""Likelihoods of networks with their latent variables integrated out, which leaving a network out needs."""
