"""A plan: a function, the points, what all points share, and a seed; written in TOML, known by its hash."""

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hierattn.base.errors import InputError, unusable
from hierattn.sweeps.calls import SEED, Call, find, seed_of
from hierattn.sweeps.points import Over, Points, points_of, written

KEYS = {"function", "over", "points", "settings", "seed"}


@dataclass(frozen=True)
class Plan:
    """What is to be done, checked."""

    call: Call
    points: Points
    settings: dict[str, Any]
    seed: int

    def options(self, k: int) -> dict[str, Any]:
        """All options of the k-th point; its seed follows from its own options, unless they hold one."""
        point = self.points.point(k)
        options = self.settings | point
        if self.call.seeded and SEED not in options:
            options[SEED] = seed_of(self.seed, options)
        return options

    def record(self) -> dict[str, Any]:
        """As a file keeps it."""
        function = {"function": self.call.name, "text_sha256": self.call.text_sha256}
        return function | {"over": self.points.record(), "settings": self.settings, "seed": self.seed}

    @property
    def sha256(self) -> str:
        """Equal plans have equal hashes."""
        return hashlib.sha256(written(self.record()).encode()).hexdigest()


def plan(function: Callable[..., Any] | str, over: Over, settings: Mapping[str, Any] | None = None, seed: int = 0) -> Plan:
    """A checked plan: the function takes every option and has all that it needs, and every point comes once."""
    call, points, shared = find(function), points_of(over), dict(settings or {})
    twice = shared.keys() & points.values.keys()
    if twice:
        raise unusable("settings", "options that the points do not have", ", ".join(sorted(twice)), "leave them out")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise unusable("seed", "a whole number below 2^32", repr(seed))
    try:
        written(shared)
    except TypeError:
        raise unusable("settings", "numbers and words, which a file can hold", ", ".join(shared)) from None
    call.check([*shared, *points.values])
    return Plan(call, points, shared, seed)


def read_plan(path: str | Path) -> Plan:
    """The plan of a TOML file: function, [over] or [[points]], [settings], seed."""
    path = Path(path)
    try:
        text = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: expected a plan in TOML, got {error.strerror}; check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a plan in TOML, got: {error}") from None
    if unknown := sorted(text.keys() - KEYS):
        raise InputError(f"{path}: expected {', '.join(sorted(KEYS))}, got {unknown[0]}")
    if ("over" in text) == ("points" in text) or "function" not in text:
        raise InputError(f"{path}: expected function, and either [over] or [[points]], got {', '.join(text) or 'nothing'}")
    function = text["function"]
    if not isinstance(function, str):
        raise InputError(f"{path}: expected the name of a function, got {function!r}")
    if function.partition(":")[0].endswith(".py"):  # beside the plan
        function = str(path.parent / function)
    return plan(function, text["over"] if "over" in text else text["points"], text.get("settings"), text.get("seed", 0))
