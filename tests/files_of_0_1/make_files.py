"""Files as version 0.1 (commit c3efc79) wrote them, and what it read in them; and the names, commands and options it had.

Run once, in a checkout of that commit with its environment:

    cd CHECKOUT && .venv/bin/python .../tests/files_of_0_1/make_files.py
"""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np

import hierattn as ha
from hierattn import cli
from hierattn.described import arrays_of
from hierattn.diagnostics import subject
from hierattn.stored_fits import read_fit

FOLDER = Path(__file__).parent
FUNCTIONS = ("fit", "read", "capture", "compare", "compare_models", "compare_outputs", "diagnose", "report", "against_gaussian")
MODULES = ("kernels", "network", "activations", "distributions")
CLASSES = ("Law", "Marginal", "Moments", "Observations", "FiniteWidth", "RandomInputs", "JointMoments", "Architecture")
SCRIPT = """
import numpy as np
from flax import nnx

X = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)

def build(seed):
    init = nnx.initializers.normal(0.5)
    layer = nnx.MultiHeadAttention(num_heads=2, in_features=8, decode=False, kernel_init=init, rngs=nnx.Rngs(seed))
    return layer, {"inputs_q": X, "mask": np.tri(3, dtype=bool)[None]}
"""
K = np.array([[1.0, 0.5], [0.5, 1.0]])
BIAS = np.array([[0.0, 1.0], [-1.0, 0.5]])
FITS = {
    "fit.nc": (ha.Architecture(heads=2), "limit_law"),
    "fit_identity.nc": (ha.Architecture(heads=2, score_function="identity"), "limit_law"),
    "fit_bias.nc": (ha.Architecture(heads=2, key_value_heads=1, bias=BIAS), "limit_law"),
    "fit_causal.nc": (ha.Architecture(heads=2, head_dim=4, rotary=[1.0, 0.1], mask="causal"), "finite_head_dim"),
}
DESCRIBED = {
    "described.npz": (ha.Architecture(heads=2, head_dim=4, sigma_q=1.6, sigma_v=0.7, key_value_heads=1, bias=BIAS), "causal"),
    "described_rotary.npz": (ha.Architecture(heads=2, head_dim=4, rotary=[1.0, 0.1]), np.array([[True, True], [False, True]])),
}


def command(*arguments):
    program = Path(sys.executable).parent / "hierattn"
    subprocess.run([program, *map(str, arguments)], check=True, cwd=FOLDER)


def told(layer):
    if layer is None:
        return None
    names = ("heads", "head_dim", "groups", "scaling", "score_function", "score_scale", "value_scale", "bias", "rotary")
    return {name: None if (x := getattr(layer, name)) is None else np.asarray(x).tolist() for name in names}


def seen(o):
    mask = o.mask if o.mask is None or isinstance(o.mask, str) else np.asarray(o.mask).tolist()
    numbers = {"networks": o.networks, "coordinates": o.coordinates, "heads": o.heads, "tokens": o.tokens.tolist()}
    return numbers | {
        "S": o.S.sum(axis=0).tolist(),
        "outputs": list(o.outputs.shape),
        "sha256": o.sha256,
        "source": o.source,
        "kernel": None if o.kernel is None else o.kernel.tolist(),
        "kernel_origin": o.kernel_origin,
        "mask": mask,
        "layer": told(o.layer),
    }


def files():
    (FOLDER / "model.py").write_text(SCRIPT)
    command("capture", "model.py:build", "--networks", 12, "--coordinates", 3, "--out", "captured.npz")
    command("sample", "--heads", 2, "--tokens", 2, "--networks", 20, "--coordinates", 4, "--scores", "--out", "sample.nc")
    command("simulate", "--width", 8, "--tokens", 2, "--networks", 20, "--coordinates", 4, "--out", "simulate.nc")
    (FOLDER / "model.py").unlink()
    y = np.asarray(ha.Law(ha.Architecture(heads=2), K).sample(jax.random.key(0), 20, 8))
    for name, (layer, mask) in DESCRIBED.items():
        np.savez(FOLDER / name, outputs=y, kernel=K, mask=mask, tokens=[0, 1], **arrays_of(layer))
    np.save(FOLDER / "outputs.npy", y)
    np.savez(FOLDER / "unnamed.npz", y)
    for name, (layer, model) in FITS.items():
        tree = ha.fit(
            ha.Observations(y, K, heads=2),
            model,
            layer,
            method="moments" if model == "limit_law" else "nuts",
            chains=2,
            log_likelihood=False,
        )
        fewer = tree.map_over_datasets(lambda data: data.isel(draw=slice(None, None, 400)) if "draw" in data.dims else data)
        fewer.to_netcdf(FOLDER / name, engine="h5netcdf")


def meaning():
    found = {}
    for path in sorted(FOLDER.glob("*.n*")):
        if path.name in FITS:
            tree = read_fit(path)
            scales = {name: float(np.median(tree["posterior"][name])) for name in ("score_scale", "value_scale")}
            layer = subject.layer_in(tree)
            mask = None if layer.mask is None else np.asarray(layer.mask).tolist()
            fitted = {"layer": told(layer), "mask": mask, "posterior": scales, "verdict": tree.attrs["verdict"]}
            found[path.name] = {"observations": seen(subject.observed(tree)), "fit": fitted}
        else:
            found[path.name] = {"observations": seen(ha.read(path))}
    return found


def surface():
    """Names, commands and options that a user could have used."""
    import typer

    def public(thing):
        own = inspect.ismodule(thing) and thing.__name__
        return sorted(
            n for n in dir(thing) if n[0] != "_" and (not own or getattr(getattr(thing, n), "__module__", None) == own)
        )

    def parameters(name):
        thing = getattr(ha, name)
        return [x for x in inspect.signature(thing.__init__ if isinstance(thing, type) else thing).parameters if x != "self"]

    group = typer.main.get_command(cli.app)
    options = {
        name: sorted(word for parameter in command.params for word in parameter.opts if word.startswith("--"))
        for name, command in group.commands.items()
    }
    return {
        "public": sorted(ha.__all__),
        "homes": ha._HOMES,
        "names": {name: public(getattr(ha, name)) for name in (*MODULES, *CLASSES)},
        "parameters": {name: parameters(name) for name in (*FUNCTIONS, *CLASSES)},
        "models": sorted(path.stem for path in Path("models").glob("*.py") if path.stem != "__init__"),
        "commands": options,
    }


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    files()
    (FOLDER / "meaning.json").write_text(json.dumps(meaning(), indent=1) + "\n")
    (FOLDER / "surface.json").write_text(json.dumps(surface(), indent=1) + "\n")
