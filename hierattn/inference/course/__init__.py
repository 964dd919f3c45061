"""The course of a fit: who looks on, the time that it may take, and fits of several layers one after the other."""
