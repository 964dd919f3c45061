"""Long runs in chunks: after each of them what is needed to go on is on disk, so that a killed run loses one chunk at most."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np

from hierattn.base.errors import InputError
from hierattn.base.files.writing import whole_file

Step = Callable[[Any, int], tuple[Any, dict[str, np.ndarray]]]
OURS = ("settings.json", "state.npz", "draws_*.npz")  # beside them only what a kill left of a file that was being written


class Checkpoint:
    """A folder with settings, the draws of every finished chunk, and the state after the last one."""

    def __init__(self, folder: str | Path, settings: dict[str, Any], resume: bool) -> None:
        self.folder = Path(folder)
        known = self.folder / "settings.json"
        settings = json.loads(json.dumps(settings))
        if self.folder.is_file() or self._foreign():
            raise InputError(f"{folder}: expected a folder for an unfinished run, got other files; move them away")
        if known.exists():
            if not resume:
                raise InputError(f"{folder}: expected no unfinished run, got one; go on with --resume, or remove it")
            self._check(json.loads(known.read_text()), settings)
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with whole_file(known, force=True) as temporary:
            temporary.write_text(json.dumps(settings, indent=1))

    def _check(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name):
                expected = f"{name} = {before.get(name)}, as when the run began"
                raise InputError(f"{self.folder}: expected {expected}, got {now.get(name)}; remove the folder to begin anew")

    def load(self, like: Any) -> tuple[Any, list[dict[str, np.ndarray]]]:
        """The state after the last finished chunk, and the draws of all of them; `like` itself if none is."""
        path = self.folder / "state.npz"
        if not path.exists():
            return like, []
        try:
            stored = _read(path)
            leaves, tree = jax.tree.flatten(like)
            state = jax.tree.unflatten(tree, [stored[f"leaf_{i}"] for i in range(len(leaves))])
            return state, [_read(self._draws(k)) for k in range(int(stored["done"]))]
        except (BadZipFile, EOFError, KeyError, OSError, ValueError) as error:
            cause = f"{type(error).__name__}: {error}"
            raise InputError(f"{self.folder}: expected an unfinished run, got damaged files ({cause}); remove it") from None

    @property
    def chunks(self) -> int:
        """How many are finished."""
        return len(list(self.folder.glob("draws_*.npz")))

    def save(self, k: int, state: Any, draws: dict[str, np.ndarray]) -> None:
        """Chunk k is finished: its draws first, then the state that counts it."""
        _write(self._draws(k), draws)
        leaves = {f"leaf_{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(state))}
        _write(self.folder / "state.npz", leaves | {"done": np.array(k + 1)})

    def remove(self) -> None:
        """The run is finished."""
        for path in self._files():
            path.unlink()
        self.folder.rmdir()

    def _draws(self, k: int) -> Path:
        return self.folder / f"draws_{k:05d}.npz"

    def _files(self) -> list[Path]:
        """All that belongs to a run, also what is left of files that were being written."""
        return [path for name in OURS for pattern in (name, f".{name}.*") for path in self.folder.glob(pattern)]

    def _foreign(self) -> bool:
        return self.folder.is_dir() and len(self._files()) < len(list(self.folder.iterdir()))


def networks_begun(folder: str | Path) -> int | None:
    """Of how many networks the unfinished run in a folder is; None if there is none."""
    try:
        found = json.loads((Path(folder) / "settings.json").read_text())
    except (OSError, ValueError):  # what is wrong with it `Checkpoint` says
        return None
    networks = found.get("networks") if isinstance(found, dict) else None
    return networks if isinstance(networks, int) else None


def _read(path: Path) -> dict[str, np.ndarray]:
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
        return dict(stored)


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with whole_file(path, force=True) as temporary, open(temporary, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def in_chunks(step: Step, state: Any, checkpoint: Checkpoint | None) -> Iterator[list[dict[str, np.ndarray]]]:
    """All draws so far, after every chunk; stop when there are enough. A resumed run begins with those on disk."""
    done: list[dict[str, np.ndarray]] = []
    if checkpoint is not None:
        state, done = checkpoint.load(state)
    if done:
        yield done
    while True:
        state, draws = step(state, len(done))
        if checkpoint is not None:
            checkpoint.save(len(done), state, draws)
        done = [*done, draws]
        yield done
