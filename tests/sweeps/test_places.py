"""Workers: the same bits as without them, also if they are killed; clusters that do not answer, or are others."""

import gc
import threading
import time

import numpy as np
import psutil
import pytest

import hierattn as ha
from hierattn import InputError
from hierattn.sweeps import places
from tests.sweeps import toy
from tests.sweeps.test_sweep import same

distributed = pytest.importorskip("distributed")
# Dask's own warnings, of sockets and event loops at its end; slow, because they may come in whichever test is next
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def tidy():
    """What Dask leaves is collected here, and not in whichever test comes next."""
    yield
    gc.collect()


def test_workers_change_nothing_and_a_killed_one_loses_nothing(tmp_path):
    """Two processes; one is killed while they work, and one point kills whoever takes it."""
    over, killed = {"a": list(range(3, 33))}, []

    def kill(done):
        if done and not killed:
            killed.append(True)
            psutil.Process().children(recursive=True)[-1].kill()

    found = ha.sweep(toy.slow, over, out=tmp_path / "x.zarr", workers=2, advance=kill)
    assert killed
    same(found, ha.sweep(toy.slow, over))


def test_a_deadly_point_is_given_up():
    found = ha.sweep(toy.deadly, {"a": [0, 1, 2, 3]}, workers=2)
    assert found["message"].values.tolist() == ["", "3 or more workers died at this point: out of memory?", "", ""]
    assert np.isfinite(found["mean"].values).tolist() == [True, False, True, True]


def test_a_cluster_that_exists(tmp_path, monkeypatch):
    with distributed.LocalCluster(1, processes=False, dashboard_address=None) as cluster:
        said = []
        found = ha.sweep(toy.numbers, {"a": [1, 2]}, scheduler=cluster.scheduler_address, say=said.append)
        same(found, ha.sweep(toy.numbers, {"a": [1, 2]}))
        assert said[0].startswith("1 workers of ")
        monkeypatch.setattr(places, "versions", lambda: dict.fromkeys(places.SAME, "0"))
        theirs = iter([dict.fromkeys(places.SAME, "0"), dict.fromkeys(places.SAME, "1")])
        monkeypatch.setattr(places, "versions", lambda: next(theirs))
        with pytest.raises(InputError, match=r"scheduler: expected hierattn 0 on every worker, got 1 on "):
            ha.sweep(toy.numbers, {"a": [1, 2]}, scheduler=cluster.scheduler_address, out=tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr").exists()


def test_a_scheduler_that_goes_is_said_and_the_rest_resumed(tmp_path):
    path, over = tmp_path / "x.zarr", {"a": list(range(40))}
    cluster = distributed.LocalCluster(1, processes=False, dashboard_address=None)
    done = []

    def close(count):
        done.append(count)
        if sum(done) == 5:
            threading.Thread(target=cluster.close).start()
            time.sleep(1)

    with pytest.raises(
        InputError, match=r"scheduler: expected the scheduler at .* to stay, got a lost connection; start it again"
    ):
        ha.sweep(toy.slow, over, out=path, scheduler=cluster.scheduler_address, advance=close)
    there = int(np.isfinite(ha.read_sweep(path)["mean"]).sum())
    assert 5 <= there < 40
    steps = []
    same(ha.sweep(toy.slow, over, out=path, resume=True, advance=steps.append), ha.sweep(toy.slow, over))
    assert steps[0] == there


def test_no_scheduler_is_one_line_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "PATIENCE", 0.5)
    with pytest.raises(InputError, match=r"scheduler: expected a Dask scheduler at tcp://127.0.0.1:9, got none that answers"):
        ha.sweep(toy.numbers, {"a": [1]}, scheduler="tcp://127.0.0.1:9", out=tmp_path / "x.zarr")
    with pytest.raises(InputError, match="workers here or a scheduler elsewhere, got both"):
        ha.sweep(toy.numbers, {"a": [1]}, scheduler="tcp://127.0.0.1:9", workers=1)
    with pytest.raises(InputError, match="workers: expected a positive whole number, got 0"):
        ha.sweep(toy.numbers, {"a": [1]}, workers=0)
    assert not list(tmp_path.iterdir())
