"""What the command `fit` tells of a fit, and of fits of several layers: verdicts, what to do next, tables, exit codes."""

import json
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from hierattn.command_line.console import fit_progress

COLUMNS = ("mean", "sd", "eti90_lb", "eti90_ub", "rhat", "ess_bulk", "ess_tail")
MORE = {"rhat", "ess", "ebfmi"}  # reasons for which further draws help
UNUSABLE, NOT_CONVERGED, INTERRUPTED = 2, 4, 130  # exit codes
FIGURE = "layers.svg"


def record_of(tree: Any) -> dict[str, Any]:
    """What a fit found, as a record: verdict, reasons, parameters, arrays of them, kappa."""
    attrs = tree.attrs
    kappa = tree["posterior"].get("kappa")
    return {
        "verdict": attrs["verdict"],
        "reasons": json.loads(attrs["reasons"]),
        "method": attrs["method"],
        "why": attrs["why"],
        "model": attrs["model"],
        "parameters": json.loads(attrs["parameters"]),
        "arrays": json.loads(attrs.get("arrays", "[]")),
        "heads_tried": json.loads(attrs.get("heads_tried", "[]")),
        "kappa": None if kappa is None else kappa.mean(("chain", "draw")).values.tolist(),
    }


def next_command(record: dict[str, Any], draws: int | None, command: list[str]) -> str | None:
    """What to type next: for what a budget left out, or after NOT CONVERGED, where more draws can help, for twice as many.

    - draws: of each chain, that the method took at most; None of a method without chains
    - command: the present one, word by word
    """
    numbers = {reason["code"]: reason["numbers"] for reason in record["reasons"]}
    if "budget" in numbers:
        go_on = ["--resume"] if "draws" in numbers["budget"] else []
        return shlex.join(["hierattn", *without(command, ("--budget",)), "--budget", "none", *go_on, "--force"])
    if record["verdict"] == "CONVERGED" or draws is None or not {*numbers} & MORE or "divergences" in numbers:
        return None
    return shlex.join(["hierattn", *without(command, ("--draws", "--most-draws")), "--draws", str(2 * draws), "--force"])


def without(command: list[str], options: tuple[str, ...], flags: tuple[str, ...] = ("--force", "--resume")) -> list[str]:
    """The words of a command but for some options with their values, and some flags."""
    kept: list[str] = []
    words = iter(command)
    for word in words:
        name = word.partition("=")[0]
        if name in options and "=" not in word:
            next(words, None)
        elif name not in (*options, *flags):
            kept.append(word)
    return kept


def print_fit(record: dict[str, Any]) -> None:
    """The verdict first, then a line for each parameter and for each array."""
    print(record["verdict"])
    for reason in record["reasons"]:
        print(f"  {reason['message']}")
    if record.get("next"):
        print(f"next: {record['next']}")
    print(f"model {record['model']}, method {record['method']} ({record['why']}), {record['seconds']} s -> {record['out']}")
    print(f"{'':24s}" + "".join(f"{name:>11s}" for name in COLUMNS))
    for name, row in record["parameters"].items():
        if "[" not in name:
            flag = "" if row["identified"] in (True, None) else "  not identified by the data"
            print(f"{name:24s}" + "".join(_number(row[key]) for key in COLUMNS) + flag)
    for line in record["arrays"]:
        print(_in_words(line))
    if record.get("heads_tried"):
        print("heads: log evidence per network, and by how much all networks' differs from the best (scores integrated out)")
    for row in record.get("heads_tried", []):
        behind = f"{-row['difference']:10.1f} +- {row['difference_error']:.1f}" if row["difference"] else "      best"
        print(f"{row['heads']:<24d}{row['log_evidence']:11.5g} +- {row['log_evidence_error']:.2g} {behind}")


def _number(x: float | None) -> str:
    return f"{'-' if x is None else format(x, '.5g'):>11s}"


def _in_words(line: dict[str, Any]) -> str:
    """An array: its entries from the smallest to the largest, and its worst chains."""
    size = " x ".join(map(str, line["shape"]))
    means, sds = (f"{line[f'{key}_least']:.4g} to {line[f'{key}_most']:.4g}" for key in ("mean", "sd"))
    worst = "" if line["rhat_most"] is None else f", R-hat at most {line['rhat_most']:.3f}"
    worst += "" if line["ess_bulk_least"] is None else f", ess_bulk at least {line['ess_bulk_least']:.0f}"
    return f"{line['name']:24s}{size}, {line['entries']} entries: means {means}, sds {sds}{worst}"


def write_layers(
    layers: dict[str, Any], how: dict[str, Any], head_dim: int | None, more: dict[str, Any], as_json: bool
) -> None:
    """Fit them all; print the table, write the figure beside it."""
    import hierattn as ha
    from hierattn.base.files.writing import whole_file
    from hierattn.inference.course.layers import FAILED, fit_layers, lines
    from hierattn.inference.fitting import layer_of
    from hierattn.inference.verdict import ESS_A_CHAIN
    from hierattn.reporting.layer_figures import figure

    start, where = time.perf_counter(), {name: more.pop(name) for name in ("out", "force", "resume", "budget")}

    def one(observations: Any, **rest: Any) -> Any:
        return ha.fit(observations, layer=layer_of(observations, head_dim), **how, **more, **rest)

    with fit_progress("", 1, ESS_A_CHAIN * how["chains"]) as advance, resumable(where["out"]):
        found = fit_layers(layers, one, **where, advance=advance)
    written = {"out": str(where["out"]), "figure": None}
    drawn = figure(found.rows)
    if drawn is not None:
        written["figure"] = str(where["out"] / FIGURE)
        with whole_file(where["out"] / FIGURE, force=True) as temporary:
            temporary.write_text(drawn, encoding="utf-8")
    if as_json:
        record = {"layers": found.rows, "seconds": round(time.perf_counter() - start, 2), "seed": more["seed"]}
        print(json.dumps(record | written, allow_nan=False))
    else:
        print(*lines(found.rows), sep="\n")
        print(f"-> {written['out']}" + (f", {written['figure']}" if drawn is not None else ""))
    verdicts = {row["verdict"] for row in found.rows}
    if "NOT CONVERGED" in verdicts or FAILED in verdicts:
        raise typer.Exit(NOT_CONVERGED if "NOT CONVERGED" in verdicts else UNUSABLE)


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Ctrl-C says how to go on, if something is there to go on with."""
    try:
        yield
    except KeyboardInterrupt:
        kept = [Path(f"{out}.resume"), *sorted(out.glob("*.resume"))] if out.is_dir() else [Path(f"{out}.resume")]
        there = out if out.is_dir() and any(out.iterdir()) else next((path for path in kept if path.exists()), None)
        more = f"; {there} keeps what is done: the same command with --resume goes on from there" if there is not None else ""
        print(f"hierattn: interrupted{more}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
