"""The commands that diagnose and report, in this process."""

import json

import numpy as np
import pytest

from hierattn import kernels
from hierattn.base.errors import InputError
from hierattn.observed import fits as stored_fits
from tests.diagnostics import drawn
from tests.reporting import trees


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    path = tmp_path_factory.mktemp("outputs") / "outputs.npz"
    np.savez(path, outputs=drawn.law(0, 40, 16), kernel=np.eye(4), heads=1)
    return path


def test_a_law_fixed_in_advance_in_json(run, outputs):
    code, out, err = run("diagnose", outputs, "--score-scale", 1.6, "--value-scale", 2, "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    assert (record["consistent"], record["reasons"][0]["code"], record["scales"]) == (False, "scale", "given")
    assert record["reasons"][0]["numbers"]["estimate"] == pytest.approx(1.0, rel=0.15)
    assert record["p_scale"] < record["level"] < record["p_within"]
    assert record["next_steps"][0].startswith("check value_scale")


def test_options_describe_the_law_and_a_page_is_written(run, tmp_path, outputs):
    np.save(tmp_path / "plain.npy", drawn.law(0, 40, 16))
    np.save(tmp_path / "K.npy", kernels.rbf(4, 1.0))
    page = tmp_path / "report.html"
    scales = ["--score-scale", 1.6, "--value-scale", 1]
    code, out, _ = run("report", tmp_path / "plain.npy", "--heads", 1, "--kernel", tmp_path / "K.npy", *scales, "--out", page)
    assert code == 0
    assert out.splitlines()[0] == "NOT CONSISTENT"
    assert out.splitlines()[-1] == str(page)
    assert "<code>kernel</code>" in page.read_text()
    told = " ".join(out.split())
    assert "looked at p-value finding" in told
    assert "the rest of the covariance between tokens 0." in told
    assert min(told.count("differs from the law"), told.count("no difference seen")) > 0
    assert "40 networks would have shown" in told
    assert "Is a Gaussian good enough?" in told
    assert "Next: is the kernel that of the layer's own inputs" in told
    assert len(out.splitlines()) < 40
    code, _, err = run("report", tmp_path / "plain.npy", "--heads", 1, "--kernel", "identity", "--out", page)
    assert code == 2
    assert "expected a new file" in err


def test_without_a_kernel_the_verdict_is_undecided(run, tmp_path):
    np.save(tmp_path / "plain.npy", drawn.law(0, 20, 4))
    code, out, _ = run("diagnose", tmp_path / "plain.npy")
    assert code == 0
    assert out.splitlines()[0] == "UNDECIDED"
    assert "the kernel of the inputs is not known" in out


def test_fits_are_known_by_their_posterior(run, tmp_path, outputs):
    path = tmp_path / "fit.nc"
    trees.fit().to_netcdf(path, engine="h5netcdf")
    assert stored_fits.is_fit(path)
    assert not stored_fits.is_fit(outputs)
    record = json.loads(run("diagnose", path, "--json")[1])
    assert (record["scales"], record["source"]) == ("fit", "outputs.npz")
    assert record["score_scale"] == pytest.approx(1.6, abs=0.02)
    code, _, err = run("diagnose", path, "--heads", 2)
    assert code == 2
    assert err == "hierattn: --heads: expected nothing with a fit, which knows it, got 2; leave it out\n"
    with pytest.raises(InputError, match="expected a fit, got a file without a posterior"):
        stored_fits.read_fit(outputs)
    with pytest.raises(InputError, match="expected a file, got none"):
        stored_fits.read_fit(tmp_path / "none.nc")
    tree = trees.fit(20, 4, 20)
    del tree["posterior_predictive"]
    tree.to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(InputError, match="without posterior_predictive"):
        stored_fits.read_fit(tmp_path / "other.nc")


@pytest.mark.parametrize("command", ["diagnose", "report", "demo"])
def test_help_is_there(run, command):
    assert run(command, "--help")[0] == 0
