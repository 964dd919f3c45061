"""The law of latent attention: one more level of the hierarchy."""
