"""Posteriors of the law's parameters: problem, methods, verdict, fit, model comparison, calibration."""
