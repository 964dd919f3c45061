"""Check the package's claims at their full counts. `make verify` runs this.

    python analysis/verify.py [CLAIM ...] [--again]

Every claim is a file in analysis/claims with `CASES`, a dict of name -> function() -> numbers including `passed`, the files
it `USES`, and a `SEED`. Results are written to analysis/results/CLAIM.json after every case, so that a killed run resumes
where it stopped; cases whose code has not changed since are not run again.
"""

import argparse
import ast
import hashlib
import json
import sys
import time
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def digest(claim) -> str:
    """A hash of the code of the claim's own file and of the files it is about; their comments and docstrings may change."""
    files = [Path(claim.__file__), *(HERE.parent / name for name in claim.USES)]
    return hashlib.sha256("".join(code(path) for path in files).encode()).hexdigest()[:16]


def code(path: Path) -> str:
    """What a file does, without words and layout."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.unparse(tree)


def verify(name: str, again: bool) -> bool:
    """Run the cases of one claim that are not on record; print a line each."""
    from hierattn.base.files.writing import whole_file
    from hierattn.base.provenance import provenance

    claim, path = import_module(f"claims.{name}"), HERE / "results" / f"{name}.json"
    origin = provenance(claim.SEED, command=f"python analysis/verify.py {name}")
    fresh = {"claim": " ".join(claim.__doc__.split()), "digest": digest(claim), "cases": {}}
    record = json.loads(path.read_text()) if path.exists() and not again else fresh
    if record["digest"] != fresh["digest"] or any(record.get(key, value) != value for key, value in origin.items()):
        record = fresh
    print(f"{name}: {record['claim']}")
    for case, check in claim.CASES.items():
        known = case in record["cases"]
        if not known:
            start = time.perf_counter()
            numbers = check()
            record["cases"][case] = numbers | {"seconds": round(time.perf_counter() - start, 2)}
            record |= origin  # versions are part of what a record is about: others start it anew
            with whole_file(path, force=True) as temporary:
                temporary.write_text(json.dumps(record, indent=1) + "\n")
        numbers = dict(record["cases"][case])
        verdict = "passed" if numbers.pop("passed") else "FAILED"
        text = ", ".join(
            f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in numbers.items()
        )
        print(f"  {verdict}{' (on record)' if known else ''}  {case}: {text}", flush=True)
    return all(numbers["passed"] for numbers in record["cases"].values())


def main() -> None:
    """All claims, or those named."""
    every = sorted(path.stem for path in (HERE / "claims").glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help=", ".join(every))
    parser.add_argument("--again", action="store_true", help="run cases on record too")
    arguments = parser.parse_args()
    unknown = set(arguments.claims) - set(every)
    if unknown:
        parser.error(f"no such claim: {', '.join(sorted(unknown))} (there are {', '.join(every)})")
    results = [verify(name, arguments.again) for name in arguments.claims or every]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
