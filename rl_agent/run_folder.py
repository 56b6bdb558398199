"""The folder of one run: the only owner of its paths, of atomic writes, and of finding the checkpoint to resume from.

config.yaml              the resolved configuration
run.log                  what happened
metrics.jsonl            one JSON object a training step
summary.json             the last figures
quarantine.jsonl         tasks that turned out to be broken, with reasons
pass_rates.jsonl         how often each task was solved, a group a line
rollouts/                step_<n>.jsonl and step_<n>.safetensors
ledger.jsonl             which rollouts were admitted, finished, filtered, trained
buffer/                  finished rollouts that no checkpoint holds yet
checkpoints/step_<n>/    complete exactly when `state.json` is in it
exports/step_<n>/        the policy after a step as a Hugging Face folder (job.export_every)
model/                   the trained policy as a Hugging Face folder
.lock                    held, as long as it lives, by the process that writes here
wandb/ logs/ weights/
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import platform
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

log = logging.getLogger(__name__)

STATE = "state.json"
PARTIAL = ".partial"
"""Suffix of incomplete files and folders."""
CONFIG = "config.yaml"
"""The resolved configuration."""
SUMMARY = "summary.json"
"""The last figures: a run that has them is at its end."""
QUARANTINE = "quarantine.jsonl"
"""Tasks that turned out to be broken, with reasons."""
PASS_RATES = "pass_rates.jsonl"  # noqa: S105 (no password)
"""File with the number of times that each task was solved."""
LOCK: Final = ".lock"
"""Lock file of the process that writes the folder. The kernel releases it when the process dies."""
_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, even if the machine stops."""
    partial = _partial(path)
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint."""

    folder: Path
    step: int
    """Training steps that were done: the next step has this number."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of a run."""

    root: Path

    @property
    def metrics(self) -> Path:
        """One JSON object a training step."""
        return self.root / "metrics.jsonl"

    @property
    def rollouts(self) -> Path:
        """Records of rollouts."""
        return self.root / "rollouts"

    @property
    def ledger(self) -> Path:
        """Return the path of the ledger, which records the outcome of every rollout."""
        return self.root / "ledger.jsonl"

    @property
    def buffer(self) -> Path:
        """Finished rollouts that no checkpoint holds yet."""
        return self.root / "buffer"

    @property
    def model(self) -> Path:
        """The trained policy."""
        return self.root / "model"

    def log(self, name: str) -> Path:
        """The log file of a process."""
        folder = self.root / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.log"

    def begin_checkpoint(self, step: int) -> Path:
        """An empty folder to write the checkpoint of `step` into. It does not count until `finish_checkpoint`."""
        folder = self._checkpoint(step)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def finish_checkpoint(self, step: int, state: dict[str, Any], keep: int) -> None:
        """Make the checkpoint count, then remove all but the newest `keep`.

        Everything in it is on the disk before it counts, so that not even a power failure leaves one that is named but torn; and
        it is on the disk that it counts before another is removed.
        """
        folder = self._checkpoint(step)
        for path in (*folder.rglob("*"), folder):
            sync(path)
        write_atomic(folder / STATE, json.dumps({"step": step, **state}).encode())
        sync(folder)
        for old in self._complete()[:-keep]:
            (old.folder / STATE).unlink()
            shutil.rmtree(old.folder)

    def begin_export(self, step: int) -> Path:
        """An empty folder to write the policy after `step` into; it gets its name with `finish_export`."""
        partial = _partial(self._export(step))
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        return partial

    def finish_export(self, step: int) -> None:
        """Give the export its name. Exports are never removed."""
        target = self._export(step)
        if target.exists():  # a resumed run does the step again
            shutil.rmtree(target)
        _partial(target).replace(target)

    def remove_unfinished(self) -> None:
        """Remove the checkpoints and exports that a killed run left half-written. Not while another process writes here."""
        for checkpoint in (self.root / "checkpoints").glob("step_*"):
            if not (checkpoint / STATE).is_file():
                shutil.rmtree(checkpoint)
        for partial in (self.root / "exports").glob(f"step_*{PARTIAL}"):
            shutil.rmtree(partial)

    def last_checkpoint(self) -> Checkpoint | None:
        """The newest complete checkpoint."""
        complete = self._complete()
        return complete[-1] if complete else None

    def truncate_metrics(self, step: int) -> None:
        """Forget the metrics of steps that a resume does again, and a half-written last line."""
        if not self.metrics.is_file():
            return
        kept = []
        for line in self.metrics.read_bytes().splitlines(keepends=True):
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if record["step"] <= step:
                kept.append(line)
        write_atomic(self.metrics, b"".join(kept))

    def _checkpoint(self, step: int) -> Path:
        return self.root / "checkpoints" / f"step_{step:05d}"

    def _export(self, step: int) -> Path:
        return self.root / "exports" / f"step_{step:05d}"

    def _complete(self) -> list[Checkpoint]:
        found = [
            Checkpoint(folder=state.parent, step=json.loads(state.read_text())["step"])
            for state in (self.root / "checkpoints").glob(f"step_*/{STATE}")
        ]
        return sorted(found, key=lambda checkpoint: checkpoint.step)


def _partial(path: Path) -> Path:
    return path.with_name(path.name + PARTIAL)


def require_run(root: Path) -> None:
    """Raise ConfigError unless `resume=<root>` names the folder of a run, and nobody writes in it."""
    if not root.is_dir():
        raise ConfigError(f"resume={root}: there is no such run folder")
    if not (root / CONFIG).is_file():
        raise ConfigError(
            f"resume={root}: this is no run folder, for it holds no {CONFIG}. Remedy: name the folder that the run printed when it started"
        )
    if in_use(root):
        raise _used(root)


def unfinished_runs(output: Path) -> list[Path]:
    """The runs below `output` that have not come to their end and that no process is at, the newest first."""
    runs = [path for path in output.glob(f"*/*/{CONFIG}") if not (path.parent / SUMMARY).is_file()]
    newest_first = sorted(runs, key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.parent for path in newest_first if not in_use(path.parent)]


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Keep every other process out of the run folder. Raises ConfigError if one is in it.

    The end of this process ends it too, however it comes: what the process has started does not inherit the lock.
    """
    with (root / LOCK).open("a+") as file:
        try:
            if not _locked(file, fcntl.LOCK_EX):
                raise _used(root)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            log.warning(
                "%s is on a file system without locks (%s): see to it that no other run writes there", root, error
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        yield


def in_use(root: Path) -> bool:
    """Return whether a process holds the run folder. Returns False on file systems without locks."""
    try:
        with (root / LOCK).open() as file:
            return not _locked(file, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise


def _locked(file: IO[str], kind: int) -> bool:
    """Take the lock until the file is closed; whether that was possible."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _used(root: Path) -> ConfigError:
    who = (root / LOCK).read_text() or "another process"
    return ConfigError(
        f"the run folder {root} is in use: {who} writes in it. Remedy: wait until that run ends, or end it; "
        "resume=auto takes a run that nobody is at, and without resume a new one begins"
    )
