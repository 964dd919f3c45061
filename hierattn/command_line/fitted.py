"""What the command `fit` prints of a fit: the verdict and why, what to do next, parameters, a line for every array."""

import json
import shlex
from typing import Any

COLUMNS = ("mean", "sd", "eti90_lb", "eti90_ub", "rhat", "ess_bulk", "ess_tail")
MORE = {"rhat", "ess", "ebfmi"}  # reasons for which further draws help


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
