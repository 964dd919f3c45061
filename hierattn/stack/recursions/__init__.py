"""Deterministic theories of the same stack: infinitely many heads, two numbers in mean field, maps, and all side by side."""
