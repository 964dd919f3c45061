"""All fitting methods, in the order in which `auto` asks them. Their files are loaded when they are needed."""

from importlib import import_module
from typing import TYPE_CHECKING

from hierattn.base.errors import check_choice, unusable

if TYPE_CHECKING:
    from hierattn.inference.methods.protocol import Method
    from hierattn.inference.problem import Problem

METHODS = {
    "marginal": lambda: import_module("hierattn.inference.methods.marginal").Marginal(),
    "moments": lambda: import_module("hierattn.inference.methods.moments").Moments(),
    "networkwise": lambda: import_module("hierattn.inference.methods.networkwise").Networkwise(),
    "nuts": lambda: import_module("hierattn.inference.methods.nuts").Nuts(),
}
AUTO, ASKED = "auto", "asked for"  # a choice, and why a method is taken that was not chosen
NAMES = (AUTO, *METHODS)


def method_of(method: "str | Method") -> "Method":
    """The method of a name, with its usual settings; a method is itself."""
    if not isinstance(method, str):
        return method
    check_choice("method", method, tuple(METHODS))
    return METHODS[method]()


def choose_method(problem: "Problem", method: "str | Method | tuple[Method, ...]" = AUTO) -> "tuple[Method, str]":
    """How to fit, and why so: a method asked for, by name or as it is, or the first of several that wants to.

    - method: "auto" asks all methods; a tuple of methods is asked in its order
    """
    if isinstance(method, str):
        check_choice("method", method, NAMES)
    if isinstance(method, tuple):
        return _first(problem, method)
    if method == AUTO:
        return _first(problem, tuple(make() for make in METHODS.values()))
    chosen = method_of(method)
    why_not = chosen.refuses(problem)
    if why_not is not None:
        raise unusable("method", "one that can fit this problem", f"{chosen.name}, which {why_not}", "use auto")
    return chosen, ASKED


def _first(problem: "Problem", methods: "tuple[Method, ...]") -> "tuple[Method, str]":
    """The first that can fit the problem and says why it should."""
    others = []
    for method in methods:
        why_not = method.refuses(problem)
        why = method.prefers(problem) if why_not is None else None
        if why is not None:
            return method, why
        others.append(f"{method.name}, which {why_not or 'should be asked for by name'}")
    raise unusable("method", "one that can fit this problem", "; ".join(others), "give another model")
