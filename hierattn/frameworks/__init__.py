"""Attention outputs of PyTorch, Flax and Hugging Face models, with the law that follows from their weights and inputs."""
