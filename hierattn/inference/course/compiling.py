"""How long JAX has been compiling in this process, so that a trial can tell compilation from work."""

from functools import cache

EVENTS = "/jax/core/compile/"


@cache
def _seconds() -> list[float]:
    """Seconds since this was called first, in a list that JAX adds to."""
    from jax import monitoring

    total = [0.0]

    def add(event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith(EVENTS):
            total[0] += duration_secs

    monitoring.register_event_duration_secs_listener(add)
    return total


def compiling() -> float:
    """Seconds of tracing and compilation so far; only differences mean something."""
    return _seconds()[0]
