"""What version 0.1 wrote, and what it could be asked, still works: files, names, arguments, commands, options, old modules.

tests/files_of_0_1/make_files.py made the files and wrote down what version 0.1 read in them (meaning.json) and what it offered
(surface.json), with the code of that version.
"""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

import hierattn as ha
from hierattn.base.moved import MOVED, PUBLIC
from hierattn.command_line.app import app
from hierattn.diagnostics.subject import of_fit
from hierattn.numerics import rqmc
from hierattn.observed.fits import is_fit, layer_of, observations_of, read_fit

FOLDER = Path(__file__).parent / "files_of_0_1"
MEANING = json.loads((FOLDER / "meaning.json").read_text())
SURFACE = json.loads((FOLDER / "surface.json").read_text())
FITS = [name for name, told in MEANING.items() if "fit" in told]


def same_layer(layer, told):
    if told is None:
        return layer is None
    return all(
        value is None if expected is None else np.array_equal(value, expected)
        for value, expected in ((getattr(layer, name), told[name]) for name in told)
    )


def same_mask(mask, told):
    return mask is None if told is None else mask == told if isinstance(told, str) else np.array_equal(mask, told)


def check_observations(found, told):
    for name in ("networks", "coordinates", "heads", "sha256", "source", "kernel_origin"):
        assert getattr(found, name) == told[name], name
    assert (found.tokens.tolist(), list(found.outputs.shape)) == (told["tokens"], told["outputs"])
    np.testing.assert_array_equal(found.S.sum(axis=0), told["S"])
    assert (found.kernel is None) == (told["kernel"] is None)
    if told["kernel"] is not None:
        np.testing.assert_array_equal(found.kernel, told["kernel"])
    assert same_mask(found.mask, told["mask"])
    assert same_layer(found.layer, told["layer"])
    assert found.layer is None or found.layer.mask is found.mask


def test_every_file_is_looked_at():
    assert set(MEANING) == {path.name for path in FOLDER.glob("*.n*")}
    assert len(FITS) == 4
    assert sum(path.stat().st_size for path in FOLDER.glob("*.n*")) < 300_000


@pytest.mark.parametrize("name", [name for name in MEANING if name not in FITS])
def test_outputs_mean_what_they_meant(name):
    assert not is_fit(FOLDER / name)
    check_observations(ha.read(FOLDER / name), MEANING[name]["observations"])


@pytest.mark.parametrize("name", FITS)
def test_fits_mean_what_they_meant(name):
    """One of an identity layer lost its score function when it was written: it is read as it was, as softmax."""
    tree, told = read_fit(FOLDER / name), MEANING[name]["fit"]
    check_observations(observations_of(tree), MEANING[name]["observations"])
    layer = layer_of(tree)
    assert same_layer(layer, told["layer"])
    assert same_mask(layer.mask, told["mask"])
    assert (layer.score_function, layer.scaling) == ("softmax", "sqrt")
    assert tree.attrs["verdict"] == told["verdict"]
    for scale, value in told["posterior"].items():
        assert float(np.median(tree["posterior"][scale])) == value


def test_laws_are_those_of_the_files(run, monkeypatch):
    """A fit's by its posterior, outputs' by their description; the law's variance there is that of a distribution in bins."""
    monkeypatch.setattr(rqmc, "BUDGET", 2**22)  # errors far below 1e-3
    tree = read_fit(FOLDER / "fit_bias.nc")
    law = of_fit(tree, None, {"score_scale": None, "value_scale": None}, 0).law
    assert (law.layer.groups, law.layer.score_function, law.layer.bias.shape) == (1, "softmax", (2, 2))
    assert law.layer.score_scale[0] == MEANING["fit_bias.nc"]["fit"]["posterior"]["score_scale"]
    record = json.loads(run("compare", FOLDER / "described.npz", "--json")[1])
    expected = ha.Law(ha.read(FOLDER / "described.npz").layer, np.array([[1.0, 0.5], [0.5, 1.0]]))
    assert record["variance_law"] == pytest.approx(expected.moments(record.get("token", 0)).variance, rel=1e-3)


def test_names_and_arguments():
    for name in SURFACE["public"]:
        assert name in ha.__all__
        assert getattr(ha, name) is not None
    for name, parts in SURFACE["names"].items():
        lost = [part for part in parts if not hasattr(getattr(ha, name), part)]
        fields = getattr(getattr(ha, name), "__dataclass_fields__", {})
        assert [part for part in lost if part not in fields] == [], name
    for name, parameters in SURFACE["parameters"].items():
        thing = getattr(ha, name)
        there = list(inspect.signature(thing.__init__ if isinstance(thing, type) else thing).parameters)
        kept = [parameter for parameter in there if parameter in parameters]
        assert kept == parameters, f"{name}: all arguments, in their order"


def test_models_without_importing_them_first():
    code = "import hierattn as ha; assert ha.models.DIMS['y']; from importlib import import_module as i\n" + "\n".join(
        f"assert callable(i('hierattn.models.{name}').model) and ha.models.{name}" for name in SURFACE["models"]
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("command", SURFACE["commands"])
def test_commands_and_options(run, command):
    code, _, err = run(command, "--help")
    assert (code, err) == (0, "")
    there = {word for parameter in typer.main.get_command(app).commands[command].params for word in parameter.opts}
    assert set(SURFACE["commands"][command]) - there == set()


IMPORTS = """
import warnings
from importlib import import_module
for name in {names}:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import_module(f"hierattn.{{name}}")
    told = [str(w.message) for w in caught if "is now" in str(w.message)]
    print(name, *told, sep="|")
for name, home in {homes}.items():
    warnings.simplefilter("ignore")
    assert getattr(import_module(f"hierattn.{{home}}"), name) is getattr(import_module("hierattn"), name), (name, home)
from hierattn.law import Law
from hierattn import law
assert law.Law is Law
"""


def test_old_modules_say_where_they_went():
    names = [*MOVED, *PUBLIC]
    code = IMPORTS.format(names=names, homes=SURFACE["homes"])
    told = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True).stdout
    warned = dict(line.partition("|")[::2] for line in told.splitlines())
    assert list(warned) == names
    for name in MOVED:
        new = MOVED[name]
        homes = ", ".join(f"hierattn.{home}" for home in ((new,) if isinstance(new, str) else new))
        assert warned[name] == f"hierattn.{name} is now {homes}; the old name goes with version 0.3"
    assert {warned[name] for name in PUBLIC} == {""}


def test_the_warning_names_the_line_that_imports(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("import sys\nfrom hierattn.architecture import Architecture, rotary_frequencies, sequence_mask\n")
    told = subprocess.run([sys.executable, "-W", "always", script], check=True, capture_output=True, text=True).stderr
    assert f"{script}:2: DeprecationWarning: hierattn.architecture is now hierattn.layer.architecture, " in told
