"""The page in a real browser: nothing on the console, nothing loaded, every figure visible on a desk and on a phone."""

import json
import re
import shutil
import subprocess

import pytest

from hierattn import diagnose, report
from tests.reporting import trees

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--allow-file-access-from-files"]
PROBE = """<body><iframe src="report.html" style="border: 0; width: %dpx; height: 900px"></iframe><pre></pre><script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, entries = frame.contentWindow.performance.getEntriesByType("resource");
  const boxes = [...page.querySelectorAll("figure svg")].map(picture => picture.getBoundingClientRect());
  document.querySelector("pre").textContent = JSON.stringify({
    boxes: boxes.map(b => [b.left, b.right, b.width, b.height]), page: page.documentElement.scrollWidth,
    tests: page.querySelector("table.stacked").getBoundingClientRect().right,
    loaded: entries.map(entry => entry.name), title: page.title });
};
</script></body>"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with a report."""
    folder, fitted = tmp_path_factory.mktemp("report"), trees.fit()
    report(diagnose(fitted), folder / "report.html", fits={"limit_law": fitted, "rival": trees.fit(offset=-3.0)})
    return folder


@pytest.mark.parametrize("width", [1280, 400])
def test_figures_are_visible_and_nothing_is_loaded(width, written, tmp_path):
    (written / "probe.html").write_text(PROBE % width)
    command = [
        CHROMIUM,
        *FLAGS,
        "--disable-web-security",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=5000",
    ]
    command += ["--window-size=1400,1000", "--dump-dom", f"file://{written / 'probe.html'}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = json.loads(re.search(r"<pre>(.*?)</pre>", run.stdout, re.DOTALL).group(1))
    assert "CONSOLE" not in run.stderr
    assert found["loaded"] == []
    assert found["title"].endswith("outputs.npz - hierattn")
    assert len(found["boxes"]) == 10
    for left, right, wide, high in found["boxes"]:
        assert 0 <= left < right <= width
        assert wide > 250
        assert high > 100
    assert found["page"] <= width
    assert found["tests"] <= width
