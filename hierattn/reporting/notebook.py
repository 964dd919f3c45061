"""A diagnosis in a notebook: shown with its figures. The public `diagnose` is taken from here, so that notebooks know."""

from hierattn.diagnostics.diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]


def shown(diagnosis: Diagnosis) -> str:
    """The verdict and the main figures as HTML."""
    from hierattn.reporting.page import notebook  # Matplotlib and Jinja only where something is shown

    return notebook(diagnosis)


Diagnosis._repr_html_ = shown  # type: ignore[attr-defined]
