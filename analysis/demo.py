"""The law in a minute: print it, draw networks of finite width, hold both against each other. `make demo` runs this.

python analysis/demo.py [--out demo]
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LAYER = ["--heads", "2", "--tokens", "4"]


def hierattn(*arguments: str) -> None:
    """Run the command line as a user would, showing what was typed."""
    print("$ hierattn", *arguments, flush=True)
    subprocess.run([Path(sys.executable).parent / "hierattn", *arguments], check=True)
    print()


def main() -> None:
    """Law, networks, comparison, picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    drawn = str(out / "width_256.nc")
    sizes = ["--networks", "2000", "--coordinates", "16"]

    hierattn("law", *LAYER)
    hierattn("simulate", "--width", "256", *LAYER, *sizes, "--out", drawn, "--force")
    hierattn("compare", drawn, *LAYER)
    hierattn("compare", "--width", "256", *LAYER)
    subprocess.run([sys.executable, HERE / "hierarchy.py", "--out", out], check=True)
    print(drawn)


if __name__ == "__main__":
    main()
