"""Programs of the general theorem (THEORY section 3): written once, they have a law, networks of any width, a NumPyro model."""

from hierattn.netsor.program import Program, dot, matrix, nonlin, output, vector

__all__ = ["Program", "dot", "matrix", "nonlin", "output", "vector"]
