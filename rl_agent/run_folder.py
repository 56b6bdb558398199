"""Folder of one run: owns its paths, atomic writes, and the search for the checkpoint to resume from.

config.yaml              resolved configuration
run.log                  log of the run
metrics.jsonl            one JSON object per training step
summary.json             final metrics
quarantine.jsonl         broken tasks, with reasons
pass_rates.jsonl         how often each task was solved, one group per line
rollouts/                step_<n>.jsonl and step_<n>.safetensors
ledger.jsonl             which rollouts were admitted, finished, filtered, trained
buffer/                  finished rollouts that are in no checkpoint yet
checkpoints/step_<n>/    complete if and only if it contains `state.json`
exports/step_<n>/        policy after a step as a Hugging Face folder (job.export_every)
model/                   trained policy as a Hugging Face folder
.lock                    locked by the process that writes to the folder, as long as that process lives
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
"""Resolved configuration."""
SUMMARY = "summary.json"
"""Final metrics. A run with this file has ended."""
QUARANTINE = "quarantine.jsonl"
"""Broken tasks, with reasons."""
PASS_RATES = "pass_rates.jsonl"  # noqa: S105 (not a password)
"""File with the number of times that each task was solved."""
LOCK: Final = ".lock"
"""Lock file of the process that writes the folder. The kernel releases it when the process dies."""
_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file atomically. After a crash of the machine the file is complete or missing."""
    partial = _partial(path)
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
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
    """Number of completed training steps, which is the number of the next step."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of a run."""

    root: Path

    @property
    def metrics(self) -> Path:
        """Return the file with one JSON object per training step."""
        return self.root / "metrics.jsonl"

    @property
    def rollouts(self) -> Path:
        """Return the folder of rollout records."""
        return self.root / "rollouts"

    @property
    def ledger(self) -> Path:
        """Return the ledger, which records the outcome of every rollout."""
        return self.root / "ledger.jsonl"

    @property
    def buffer(self) -> Path:
        """Return the folder of finished rollouts that are in no checkpoint yet."""
        return self.root / "buffer"

    @property
    def model(self) -> Path:
        """Return the folder of the trained policy."""
        return self.root / "model"

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        folder = self.root / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.log"

    def begin_checkpoint(self, step: int) -> Path:
        """Create an empty folder for the checkpoint of `step`. It does not count until `finish_checkpoint`."""
        folder = self._checkpoint(step)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def finish_checkpoint(self, step: int, state: dict[str, Any], keep: int) -> None:
        """Make the checkpoint count, then remove all but the newest `keep`.

        The contents are synced to disk before the checkpoint counts, so that a power failure never leaves a counted but
        incomplete checkpoint. The checkpoint's state is synced to disk before older checkpoints are removed.
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
        """Create an empty folder for the policy after `step`. `finish_export` gives it its final name."""
        partial = _partial(self._export(step))
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        return partial

    def finish_export(self, step: int) -> None:
        """Give the export its final name. Exports are never removed."""
        target = self._export(step)
        if target.exists():  # a resumed run repeats the step
            shutil.rmtree(target)
        _partial(target).replace(target)

    def remove_unfinished(self) -> None:
        """Remove incomplete checkpoints and exports of a killed run. Not safe while another process writes here."""
        for checkpoint in (self.root / "checkpoints").glob("step_*"):
            if not (checkpoint / STATE).is_file():
                shutil.rmtree(checkpoint)
        for partial in (self.root / "exports").glob(f"step_*{PARTIAL}"):
            shutil.rmtree(partial)

    def last_checkpoint(self) -> Checkpoint | None:
        """Return the newest complete checkpoint."""
        complete = self._complete()
        return complete[-1] if complete else None

    def truncate_metrics(self, step: int) -> None:
        """Drop the metrics of steps that a resumed run repeats, and an incomplete last line."""
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
    """Raise ConfigError unless `resume=<root>` names the folder of a run that no process uses."""
    if not root.is_dir():
        raise ConfigError(f"resume={root}: run folder not found. Name the folder of a run.")
    if not (root / CONFIG).is_file():
        raise ConfigError(
            f"resume={root}: not a run folder: {CONFIG} not found. Name the folder that the run printed at its start."
        )
    if in_use(root):
        raise _used(root)


def unfinished_runs(output: Path) -> list[Path]:
    """Return the runs below `output` that have not ended and that no process uses, newest first."""
    runs = [path for path in output.glob(f"*/*/{CONFIG}") if not (path.parent / SUMMARY).is_file()]
    newest_first = sorted(runs, key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.parent for path in newest_first if not in_use(path.parent)]


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Lock other processes out of the run folder. Raises ConfigError if one uses it.

    The lock ends with this process, even if the process is killed, because its child processes do not inherit the lock.
    """
    with (root / LOCK).open("a+") as file:
        try:
            if not _locked(file, fcntl.LOCK_EX):
                raise _used(root)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            log.warning("%s: the file system has no locks (%s). Make sure that no other run writes there.", root, error)
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
    """Try to take the lock until the file is closed. Returns whether that succeeded."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _used(root: Path) -> ConfigError:
    who = (root / LOCK).read_text() or "another process"
    return ConfigError(
        f"the run folder {root} is in use: {who} writes to it. Wait until that run ends, or end it. "
        "resume=auto continues a run that no process uses. Without resume a new run starts."
    )
