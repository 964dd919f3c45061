"""Programs of the general theorem: written once, they have a law, networks of any width, a NumPyro model, a graph."""

from hierattn.netsor.program import Program, dot, matrix, nonlin, output, vector

__all__ = ["Program", "dot", "matrix", "nonlin", "output", "vector"]
