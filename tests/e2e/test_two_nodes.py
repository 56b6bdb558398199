"""A cluster of two machines (network namespaces with addresses of their own), brought up as a user does; then one is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.e2e.command import ROOT, Command
from tests.e2e.netns import SSH, machines, needs_netns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.netns import Machine

pytestmark = [pytest.mark.long, pytest.mark.e2e, pytest.mark.slow, needs_netns, pytest.mark.timeout(900)]
SMALL = "--object-store-memory=80000000 --num-cpus=2"


def cluster(what: str, hosts: str, port: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "rl_agent.cluster", what, f"hosts={hosts}", f"port={port}", f"ssh={SSH}"]
    if what == "up":
        words.append(f"start_options={SMALL}")
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)


@contextmanager
def two_nodes(port: int) -> Iterator[tuple[Machine, Machine, str]]:
    """Head and worker machine, and the hosts as the command line has them."""
    with machines(2) as (head, worker):
        hosts = f"{head.name}={head.address}:train,{worker.name}={worker.address}:sample"
        up = cluster("up", hosts, port)
        assert up.returncode == 0, up.stderr
        assert f"cluster.address={head.address}:{port}" in up.stdout
        try:
            yield head, worker, hosts
        finally:
            down = cluster("down", hosts, port)
            assert down.returncode == 0, down.stderr


class OnHead(Command):
    """A run that is started on the first machine."""

    __slots__ = ("head",)
    head: Machine

    def start(self) -> None:
        values = [f"hydra.run.dir={self.output}", *self.overrides]
        self.process = subprocess.Popen(
            [*SSH.split(), self.head.name, sys.executable, "-m", "rl_agent", *values],
            cwd=ROOT,
            env={**os.environ, "RL_AGENT_TEST_MARK": self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def actors(machine: Machine) -> set[str]:
    """What of the run is there."""
    found = set()
    for process in machine.processes():
        try:
            title = process.cmdline()[0] if process.cmdline() else ""
        except psutil.Error:
            continue
        if title.startswith("ray::"):
            found.add(title.removeprefix("ray::").partition(".")[0].partition("(")[0].strip())
    return found & {"RolloutWorker", "PolicyServer", "TrainerRank"}


def until(holds, seconds: float) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert holds()


def test_workers_on_one_machine_the_rest_on_the_other_and_the_loss_of_the_workers_machine_is_survived(
    tmp_path: Path,
) -> None:
    port = 20000 + os.getpid() % 10000
    with two_nodes(port) as (head, worker, hosts):
        status = cluster("status", hosts, port)
        assert [line.split()[:3] for line in sorted(status.stdout.splitlines())] == [
            [head.address, "alive", "role=train"],
            [worker.address, "alive", "role=sample"],
        ], status.stdout + status.stderr
        run = OnHead(
            output=tmp_path / "run",
            overrides=(
                "cluster=ray_address",
                f"cluster.address={head.address}:{port}",
                "cluster.cpus_per_worker=0.5",
                "cluster.trainer_cpus=1",
                "cluster.rollout_workers=2",
                "cluster.worker_nodes='role=sample'",
                "cluster.engine_nodes='role=train'",
                "cluster.trainer_nodes='role=train'",
                "engine=demonstrator",
                "engine.delay_s=0.5",
                "tracking=none",
                "tracking.console=false",
                "debug=fast",
                "job.steps=6",
                f"sandbox.state_dir={tmp_path}/state",
            ),
        )
        run.head = head
        run.start()
        until(lambda: len(run.metrics()) >= 2 or run.process.poll() is not None, 200)
        assert run.process is not None
        assert run.process.poll() is None, run.process.communicate()
        assert actors(worker) == {"RolloutWorker"}
        assert actors(head) == {"PolicyServer", "TrainerRank"}
        worker.power_off()
        done = run.finish(timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        metrics = run.metrics()
        assert [record["step"] for record in metrics] == [1, 2, 3, 4, 5, 6]
        assert all(record["reward/mean"] == 1.0 for record in metrics)
        logs = {path.name for path in (run.output / "logs").iterdir()}
        assert {"rollout_worker_0.log", "rollout_worker_1.log", "trainer_0.log", "policy_server.log"} <= logs
        assert "rollout worker 0 is down" in (run.output / "run.log").read_text()
        lines = [
            json.loads(line)
            for step in range(1, 7)
            for line in (run.output / "rollouts" / f"step_{step:05d}.jsonl").read_text().splitlines()
        ]
        assert {line["status"] for line in lines} == {"solved"}
    run.assert_nothing_left()
