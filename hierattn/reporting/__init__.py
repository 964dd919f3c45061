"""Pages and figures that say what to believe."""
