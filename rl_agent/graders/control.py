"""The twins of tasks: made once, at first use or by `job=validate`, and kept on disk."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import secrets
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_agent.graders.names import seen_names
from rl_agent.graders.sandboxed import collect_tests, run_tests
from rl_agent.twins.make import Maker, Seen, candidates, make_unvalidated
from rl_agent.twins.twin_set import TwinSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.config.grader import GraderConfig
    from rl_agent.graders.sandboxed import Judge
    from rl_agent.sandboxes.base import SandboxProvider
    from rl_agent.tasks.task import Task

log = logging.getLogger(__name__)

VERSION: Final = 1
"""Increased when the same task would get other twins."""


class TwinStore:
    """Twins by task. Concurrent gradings of one task share one making."""

    def __init__(self, config: GraderConfig) -> None:
        self._config = config
        self._folder = (
            Path(config.twins_dir).expanduser() if config.twins_dir else Path.home() / ".cache" / "rl_agent" / "twins"
        )
        self._locks: dict[str, asyncio.Lock] = {}

    async def of(self, judge: Judge, task: Task, provider: SandboxProvider) -> TwinSet:
        """Return the twins of a task. Raises SetupError if its tests cannot be brought, SandboxError for a lost sandbox."""
        key = _key(task, self._config)
        path = self._folder / f"{key}.json"
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                known = await asyncio.to_thread(_read, path)
                if known is None:
                    known = await self._make(judge, task, provider)
                    await asyncio.to_thread(_write, path, known)
        finally:
            if not lock.locked():
                self._locks.pop(key, None)
        return known

    async def keep(self, task: Task, twins: TwinSet) -> None:
        """Keep what grading has learned about the twins of a task."""
        await asyncio.to_thread(_write, self._folder / f"{_key(task, self._config)}.json", twins)

    async def _make(self, judge: Judge, task: Task, provider: SandboxProvider) -> TwinSet:
        files = await collect_tests(judge, task, provider, self._config)
        rng = random.Random(secrets.randbits(64))  # noqa: S311 (seeded by a secret)
        keeps, controls = judge.reads_docstrings, judge.controls(task.grader)
        names = judge.names(task.grader).all
        found = await asyncio.to_thread(candidates, files, rng, named=names, keeps_docstrings=keeps, controls=controls)
        if task.gold_patch is None:
            return make_unvalidated(found, names, rng)
        gold = task.gold_patch.encode()

        async def run(files: Mapping[str, bytes]) -> Seen:
            applied = await run_tests(judge, task, gold, provider, self._config, mixed=files)
            return Seen(outcomes=applied.run.outcomes, log=applied.run.log) if applied.run else Seen(outcomes={})

        return await Maker(found, run, rng).make(
            lambda seen: [found for name in names for found in seen_names(name, seen)]
        )


def _key(task: Task, config: GraderConfig) -> str:
    """Return a hash of everything that the twins depend on."""
    depends = {
        "version": VERSION,
        "kind": type(task.grader).__name__,
        "grader": asdict(task.grader),
        "image": task.image,
        "workdir": task.workdir,
        "files": dict(task.files),
        "pre_commands": task.pre_commands,
        "hidden_paths": task.hidden_paths,
        "gold_patch": task.gold_patch,
        "plugin_autoload": config.plugin_autoload,
    }
    return hashlib.sha256(json.dumps(depends, sort_keys=True, default=str).encode()).hexdigest()


def _read(path: Path) -> TwinSet | None:
    """Return the twins in a file, or None if it does not exist or is damaged."""
    try:
        return TwinSet.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        log.warning("%s: damaged, the twins are made again: %r", path, error)
        return None


def _write(path: Path, twins: TwinSet) -> None:
    """Write a file of its own first: another process may make the twins of the same task."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(twins.dumps())
    Path(file.name).replace(path)
