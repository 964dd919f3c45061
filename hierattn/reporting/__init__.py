"""One self-contained page that says what to believe."""
