"""What an attention layer is: description, score functions, positions, masks, activations, kernels, and its record in files."""
