"""Ranking of models: by exact leave-one-out densities of a model that has them, against ArviZ's table, and what is refused."""

import json
import types

import arviz
import numpy as np
import pytest
import xarray as xr
from scipy import stats

from hierattn import InputError, Observations
from hierattn.inference import model_comparison
from hierattn.inference.course.budget import Budget
from hierattn.inference.model_comparison import compare_models
from tests.inference import tiny

M, DRAWS = 60, 4000
X = np.random.default_rng(0).normal(1.0, 1.0, M)  # one number a network
Y = np.random.default_rng(2).normal(size=(M, 3, 2))  # not looked at: fits are made here
OBSERVATIONS = Observations(Y, kernel=tiny.K, heads=2)


def exact_loo(sd):
    """Of x ~ N(mu, sd^2) with a flat prior on mu: the others predict N(their mean, sd^2 (1 + 1 / (M - 1)))."""
    others = (X.sum() - X) / (M - 1)
    return stats.norm.logpdf(X, others, sd * np.sqrt(M / (M - 1)))


def fitted(sd, verdict="CONVERGED", error=0.0, outlier=0.0):
    """The posterior of mu by its exact law, as a fit would return it."""
    x = X.copy()
    x[0] += outlier
    mu = np.random.default_rng(1).normal(x.mean(), sd / np.sqrt(M), (4, DRAWS // 4))
    value = stats.norm.logpdf(x, mu[..., None], sd)
    likelihood = xr.Dataset({"y": (("chain", "draw", "network"), value)}, attrs={"integration_error": error})
    posterior = xr.Dataset({"mu": (("chain", "draw"), mu)})
    tree = xr.DataTree.from_dict({"posterior": posterior, "log_likelihood": likelihood})
    tree.attrs = {"verdict": verdict, "reasons": json.dumps([])}
    return tree


def refuse(*_, **__):
    raise InputError("width: expected the width of the networks")


@pytest.fixture
def fits(monkeypatch):
    """Fits by name in the place of real ones."""
    known = {
        "right": lambda: fitted(1.0),
        "wide": lambda: fitted(2.0),
        "lost": lambda: fitted(1.0, verdict="NOT CONVERGED"),
        "blurred": lambda: fitted(1.0, error=2.0),
        "heavy": lambda: fitted(1.0, outlier=40.0),
        "no likelihood": lambda: fitted(1.0).drop_nodes("log_likelihood"),
        "few": lambda: fitted(1.0).isel(network=slice(20)),
        "refused": refuse,
    }
    fake = types.SimpleNamespace(calls=[])

    def fit(observations, name, layer, **options):
        fake.calls.append((name, options))
        return known[name]()

    monkeypatch.setattr(model_comparison, "fit", fit)
    return fake


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_elpd_is_that_of_leaving_networks_out(fits):
    """To .05 of 60 networks, where the likelihood itself, networks not left out, is off by more than that."""
    ranking = compare_models(OBSERVATIONS, models=("wide", "right"), seed=3)
    assert [row["model"] for row in ranking.rows] == ["right", "wide"]
    for row, sd in zip(ranking.rows, (1.0, 2.0), strict=True):
        loo = exact_loo(sd)
        assert row["elpd"] == pytest.approx(loo.sum(), abs=0.05)
        assert row["elpd_error"] == pytest.approx(np.sqrt(M) * loo.std(), rel=0.02)
        assert abs(stats.norm.logpdf(X, X.mean(), sd).sum() - loo.sum()) > 0.2
    gap = exact_loo(1.0) - exact_loo(2.0)
    assert ranking.rows[1]["difference"] == pytest.approx(gap.sum(), abs=0.05)
    assert ranking.rows[1]["difference_error"] == pytest.approx(np.sqrt(M) * gap.std(), rel=0.02)
    assert ranking.rows[0]["difference"] == ranking.rows[0]["difference_error"] == 0
    table = arviz.compare(ranking.fits, round_to="none")
    assert list(table.index) == ["right", "wide"]
    assert abs(table.loc["wide", "elpd_diff"]) == pytest.approx(ranking.rows[1]["difference"])
    assert table.loc["wide", "dse"] == pytest.approx(ranking.rows[1]["difference_error"])
    assert all(options["seed"] == 3 for _, options in fits.calls)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_every_model_tells_how_far_it_is(fits, tmp_path):
    """By name; and outputs may be a file."""
    np.savez(tmp_path / "y.npz", outputs=Y, kernel=tiny.K, heads=2)
    told = []
    compare_models(tmp_path / "y.npz", models=("wide", "right"), advance=lambda name, done: told.append((name, done)))
    fits.calls[1][1]["advance"](50)
    assert told == [("wide", 0), ("right", 0), ("right", 50)]


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("lost", "untrusted", "its fit did not converge"),
        ("blurred", "untrusted", "integration blurs its elpd by 15.5"),
        ("heavy", "untrusted", "its largest Pareto k is"),
        ("no likelihood", "untrusted", "its log likelihood was not computed"),
        ("few", "untrusted", "there was time for 20 of 60 networks only; give a longer budget"),
        ("refused", "not_applicable", "width: expected the width of the networks"),
    ],
)
def test_what_cannot_be_trusted_is_not_ranked(fits, name, code, words):
    ranking = compare_models(OBSERVATIONS, models=("right", name))
    assert [row["model"] for row in ranking.rows] == ["right"]
    assert [found["code"] for found in ranking.reasons] == [code]
    assert words in ranking.reasons[0]["message"]
    assert ranking.reasons[0]["message"].startswith(name)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_every_model_has_its_share_of_the_time_that_is_left(fits):
    """Of 100 seconds with fits that take 10, 0 and 0: a third of 100, half of 90, 90."""
    times = iter([0.0, 0.0, 10.0, 10.0])
    compare_models(OBSERVATIONS, models=("right", "wide", "lost"), budget=Budget(100.0, clock=lambda: next(times)))
    assert [options["budget"].seconds for _, options in fits.calls] == pytest.approx([100 / 3, 45.0, 90.0])
    compare_models(OBSERVATIONS, models=("wide", "right"))
    assert all(options["budget"].seconds == np.inf for _, options in fits.calls[3:])
