"""A model's function: ours, and those of others."""

import functools
import subprocess
import sys

import numpy as np
import pytest
from numpyro import handlers

from hierattn import InputError
from hierattn.inference.calling import MODELS, lookup, parameters_of
from hierattn.inference.fitting import fit
from tests.inference import tiny
from tests.inference.trees import GROUPS, check

Y = tiny.outputs()
OWN_MODEL = """
import numpyro
import numpyro.distributions as dist
from hierattn.law.plates import observe, plates

def model(outputs=None, networks=1, coordinates=1, tokens=1):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 2.0))
    network, coordinate, y = plates(outputs, tokens, networks, coordinates)
    with network:
        observe(dist.Laplace(0.0, 1 / rate).expand([tokens]).to_event(1), coordinate, y)
"""


def test_a_model_of_ones_own(tmp_path):
    """Called like one of ours, which it must not be taken for. The posterior is a Gamma, known exactly."""
    file = tmp_path / "limit_law.py"
    file.write_text(OWN_MODEL)
    result = check(fit(tiny.observations(), file, method=tiny.METHODS, chains=2), GROUPS | {"log_likelihood"})
    assert result.attrs["model"] == "limit_law.py"
    assert result.attrs["method"] == "nuts"
    rate = np.asarray(result["posterior"]["rate"])
    exact = (2 + Y.size) / (2 + np.abs(Y).sum())
    assert abs(rate.mean() / exact - 1) < 0.1
    likelihood = np.log(rate / 2)[..., None] * Y[0].size - rate[..., None] * np.abs(Y).sum(axis=(1, 2))
    np.testing.assert_allclose(result["log_likelihood"]["y"], likelihood, rtol=1e-6)


def test_arguments_are_found_beneath_handlers_and_wrappers():
    """Of our models, of users' under NumPyro's handlers, and of both, in any order."""

    def model(outputs=None, networks=1, coordinates=1, secret=None):
        """A user's."""

    names = ["outputs", "networks", "coordinates", "secret"]
    handled = handlers.reparam(handlers.substitute(model, {}), config={})
    wrapped = functools.wraps(model)(lambda *args, **kwargs: handled(*args, **kwargs))
    around = functools.wraps(handled)(lambda *args, **kwargs: handled(*args, **kwargs))
    for function in (model, handled, wrapped, around, handlers.seed(around, 0), functools.partial(model)):
        assert list(parameters_of(function)) == names
    for name in MODELS:
        assert {"outputs", "networks", "coordinates"} <= set(parameters_of(lookup(name).model))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "expected a function `model`, got x"),
        ("def model(", "expected a file that Python can run, got SyntaxError"),
        ("def model(outputs=None): pass", "expected a function with the arguments outputs, networks, coordinates"),
        ("def model(secret, outputs=None, networks=1, coordinates=1): pass", "got secret; give the others defaults"),
        ("def model(outputs=None, networks=1, coordinates=1): pass", "expected a site `y` under the plates"),
    ],
)
def test_files_that_are_no_models_are_refused(tmp_path, text, words):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(InputError) as raised:
        fit(tiny.observations(), str(tmp_path / "mine.py"))
    assert words in str(raised.value)


def test_numpyro_is_whole_after_arviz():
    """ArviZ leaves a lazy NumPyro behind, of which importing a part first would make a second copy of that part."""
    code = "import sys, arviz, hierattn.inference.fitting, numpyro\n"
    code += "assert numpyro.distributions.distribution and numpyro.handlers is sys.modules['numpyro.handlers']"
    subprocess.run([sys.executable, "-c", code], check=True)
