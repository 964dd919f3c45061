"""What was observed: outputs of networks with their kernels, reduced to sufficient statistics, and fits read back."""
