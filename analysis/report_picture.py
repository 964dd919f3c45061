"""The demo's report as a picture, by headless Chromium.

python analysis/report_picture.py [--page demo/report.html]
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from hierattn.base.files.writing import whole_file

HERE = Path(__file__).parent
SIZE = (1280, 1500)


def main() -> None:
    """Take the picture of the page's beginning; the page is made first where there is none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=HERE.parent / "demo" / "report.html")
    page = parser.parse_args().page
    if not page.exists():
        program = Path(sys.executable).parent / "hierattn"
        subprocess.run([program, "demo", "--out", page.parent, "--force"], check=True)
    chromium = shutil.which("chromium") or sys.exit("no Chromium is installed: apt-get install chromium")
    with whole_file(HERE / "figures" / "report.png", force=True) as temporary:
        picture = temporary.with_suffix(".png")
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}"]
        subprocess.run([chromium, *flags, f"--screenshot={picture}", page.resolve().as_uri()], check=True, capture_output=True)
        picture.replace(temporary)
    print(HERE / "figures" / "report.png")


if __name__ == "__main__":
    main()
