"""The whole job on a built-in layer: finite networks drawn weight by weight, a fit, rival models, the report."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import hierattn as ha
from hierattn.base.files.writing import check_new, whole_file
from hierattn.diagnostics.diagnosis import Diagnosis
from hierattn.reporting.page import report

TOKENS, WIDTH, NETWORKS, COORDINATES = 4, 256, 60, 32
HEADS, SCORE_SCALE = 2, 1.4
MODELS = ("limit_law", "student_t")  # the second: heavy tails without the hierarchy
STEPS = ("simulate", *MODELS, "diagnose", "report")


def demonstrate(
    out: str | Path, seed: int = 0, force: bool = False, advance: Callable[[int], Any] = lambda done: None
) -> tuple[Path, Diagnosis]:
    """Path of the report and the verdict; outputs and fits are written beside it."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    page, data = folder / "report.html", folder / "outputs.npz"
    fits = {name: folder / f"{name}.nc" for name in MODELS}
    for path in (page, data, *fits.values()):
        check_new(path, force)
    observations = simulated(data, seed, force)
    advance(1)
    trees = {}
    for name, path in fits.items():
        trees[name] = ha.fit(observations, name, seed=seed, out=path, force=force)
        advance(1)
    diagnosis = ha.diagnose(trees[MODELS[0]], seed=seed)
    advance(1)
    report(diagnosis, page, fits=trees, force=force)
    advance(1)
    return page, diagnosis


def simulated(path: Path, seed: int, force: bool) -> "ha.Observations":
    """Outputs of finite networks that share their inputs, written with them and read back as a user's would be."""
    layer = ha.Architecture(heads=HEADS, sigma_q=SCORE_SCALE)
    key_X, key_y = jax.random.split(jax.random.key(seed))
    X = np.asarray(jax.random.normal(key_X, (TOKENS, WIDTH)))
    y = np.asarray(ha.network.simulate(key_y, layer, X, NETWORKS, COORDINATES).y)
    with whole_file(path, force) as temporary, open(temporary, "wb") as file:
        np.savez(file, outputs=y, inputs=X, heads=layer.heads)
    return ha.read(path)
