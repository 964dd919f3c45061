"""Depth: stacks of attention, MLPs, residuals and norms, and their law as a chain of Gram matrices, exact at any width."""
