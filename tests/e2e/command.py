"""Runs `python -m rl_agent` as a user does, and finds every process that it started, however detached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent.parent
SCRIPTED = ("tracking=none", "debug=fast", "algo=sft", "algo.group_size=1", "engine=demonstrator")
"""A run without a sampler: the engine is the script that solves the toy tasks, and the algorithm learns its tokens by heart."""
GONE_S = 30.0
"""How long what a killed process started may take to follow it."""


@dataclass(slots=True, kw_only=True)
class Command:
    """One run. Its mark is in the environment of everything that it starts outside sandboxes."""

    overrides: tuple[str, ...]
    output: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it. Options go before overrides: Hydra's parser wants it so."""
        options = [word for word in self.overrides if word.startswith("-")]
        values = [word for word in self.overrides if not word.startswith("-")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rl_agent", *options, f"hydra.run.dir={self.output}", *values],
            cwd=ROOT,
            env={**os.environ, "RL_AGENT_TEST_MARK": self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, timeout: float) -> subprocess.CompletedProcess[str]:
        """Wait for its end."""
        assert self.process is not None
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"no end within {timeout:.0f} s\n{out[-2000:]}\n{err[-2000:]}") from None
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, err)

    def run(self, timeout: float) -> subprocess.CompletedProcess[str]:
        """Start it and wait for its end; nothing may be left then."""
        self.start()
        done = self.finish(timeout)
        self.assert_nothing_left()
        return done

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl so far."""
        path = self.output / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def family(self) -> list[psutil.Process]:
        """Its process and all below it; empty once it is gone."""
        assert self.process is not None
        try:
            main = psutil.Process(self.process.pid)
            return [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def processes(self) -> list[str]:
        """Command lines of live processes with the mark, or with the run folder in their arguments."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                arguments = (entry / "cmdline").read_bytes()
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if arguments and (self.mark.encode() in environment or str(self.output).encode() in arguments):
                found.append(arguments.replace(b"\0", b" ").decode(errors="replace")[:200])
        return found

    def assert_nothing_left(self) -> None:
        """No process with the mark is alive."""
        deadline = time.monotonic() + GONE_S
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left, f"processes left behind: {left}"
