"""Attention layers of PyTorch, Flax and Hugging Face models, captured with the law that follows from their weights."""
