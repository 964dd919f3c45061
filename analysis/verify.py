"""Check the package's claims at their full counts. `make verify` runs this.

    python analysis/verify.py [CLAIM ...] [--stale] [--again]

Every claim is a file in analysis/claims with `CASES`, a dict of name -> function() -> numbers including `passed`, and a `SEED`.
Results are written to analysis/results/CLAIM.json after every case, so that a killed run resumes where it stopped. Beside them
stand hashes of all definitions that the claim reaches (tests/definitions.py): cases on record for the present code are not run
again, and `--stale` says which claims have no such record, and what has changed. Moving code or changing words is no change.
"""

import argparse
import json
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from tests.definitions import Graph, graph  # noqa: E402
from tests.graph import imported  # noqa: E402

RESULTS = HERE / "results"
MOST_NAMES = 12  # of definitions, in one line
OWN = ("version_hierattn", "command")  # of a record's origin: the definitions tell versions of our own apart


def claims() -> list[str]:
    """Names of all claims."""
    return sorted(path.stem for path in (HERE / "claims").glob("*.py"))


def recorded(name: str) -> dict[str, Any] | None:
    """The record of a claim."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def changes(record: dict[str, Any] | None, digests: dict[str, str], origin: dict[str, Any]) -> str:
    """Why a record is not of the present code and versions; empty if it is."""
    if record is None:
        return "not on record"
    known = record.get("definitions")
    if known is None:
        return "stale, recorded before definitions were"
    both = known.keys() & digests.keys()
    kinds = {
        "changed": [name for name in sorted(both) if known[name] != digests[name]],
        "new": sorted(digests.keys() - both),
        "gone": sorted(known.keys() - both),
        "made with other": [
            f"{key.removeprefix('version_')} ({record.get(key)}, not {value})"
            for key, value in origin.items()
            if key not in OWN and record.get(key) != value
        ],
    }
    told = [f"{kind}: {_some(names)}" for kind, names in kinds.items() if names]
    return f"stale, {'; '.join(told)}" if told else ""


def _some(names: list[str]) -> str:
    """Names, not too many."""
    more = [f"and {len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return ", ".join([*names[:MOST_NAMES], *more])


def missing(name: str, found: Graph) -> list[str]:
    """Packages that a claim imports and that are not installed here."""
    module = f"analysis.claims.{name}"
    packages = {dotted.partition(".")[0] for dotted in imported(found.trees[module])}
    return sorted(p for p in packages if found.resolve(p, module) is None and find_spec(p) is None)


def origin_of(name: str) -> dict[str, Any]:
    """Command, seed and versions."""
    from hierattn.base.provenance import provenance

    return provenance(import_module(f"claims.{name}").SEED, command=f"python analysis/verify.py {name}")


def state(name: str, found: Graph) -> str:
    """One line on a claim's record; empty if it is complete and of the present code."""
    if lacks := missing(name, found):
        return f"not run here: needs {', '.join(lacks)}"
    record = recorded(name)
    why = changes(record, found.digests(f"analysis.claims.{name}"), origin_of(name))
    if why or record is None:
        return why
    cases = import_module(f"claims.{name}").CASES
    left = [case for case in cases if case not in record["cases"]]
    return f"unfinished, {len(left)} of {len(cases)} cases to run" if left else ""


def verify(name: str, again: bool, found: Graph) -> bool:
    """Run the cases of one claim that are not on record; print a line each."""
    from hierattn.base.files.writing import whole_file

    if lacks := missing(name, found):
        print(f"{name}: not run here: needs {', '.join(lacks)}")
        return True
    claim, origin, digests = import_module(f"claims.{name}"), origin_of(name), found.digests(f"analysis.claims.{name}")
    record = recorded(name)
    if record is None or again or changes(record, digests, origin):
        record = {"cases": {}}
    print(f"{name}: {' '.join(claim.__doc__.split())}")
    for case, check in claim.CASES.items():
        known = case in record["cases"]
        if not known:
            start = time.perf_counter()
            numbers = check()
            numbers["seconds"] = round(time.perf_counter() - start, 2)
            cases = record["cases"] | {case: numbers}
            record = {"claim": " ".join(claim.__doc__.split()), **origin, "cases": cases, "definitions": digests}
            with whole_file(RESULTS / f"{name}.json", force=True) as temporary:
                temporary.write_text(json.dumps(record, indent=1) + "\n")
        numbers = dict(record["cases"][case])
        verdict = "passed" if numbers.pop("passed") else "FAILED"
        text = ", ".join(
            f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in numbers.items()
        )
        print(f"  {verdict}{' (on record)' if known else ''}  {case}: {text}", flush=True)
    return all(record["cases"][case]["passed"] for case in claim.CASES)


def main() -> None:
    """All claims, or those named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help=", ".join(claims()))
    parser.add_argument("--stale", action="store_true", help="say what there is to run and why, and run nothing")
    parser.add_argument("--again", action="store_true", help="run cases on record too")
    arguments = parser.parse_args()
    unknown = set(arguments.claims) - set(claims())
    if unknown:
        parser.error(f"no such claim: {', '.join(sorted(unknown))} (there are {', '.join(claims())})")
    chosen, found = arguments.claims or claims(), graph()
    states = {name: state(name, found) for name in chosen}
    for name, words in states.items():
        print(f"{name}: {words or 'on record for the present code'}", flush=True)
    if arguments.stale:
        sys.exit(any(states.values()))
    results = [verify(name, arguments.again, found) for name in chosen]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
