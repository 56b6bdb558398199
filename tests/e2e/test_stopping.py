"""An episode that is cancelled is over within five seconds, wherever it was: no process, mount, sandbox or session is left."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from rl_agent.cluster.bring_up import cluster
from rl_agent.config.hints import precompose
from rl_agent.config.load import load
from rl_agent.embedded.tiny import WARM_STARTS
from rl_agent.embedded.toy import toy_tasks
from rl_agent.rollout.group import EpisodeRequest, Slot
from rl_agent.run_folder import RunFolder
from tests.conftest import CONF
from tests.e2e.slow_sandbox import CHOICE, REACHED, SlowDemonstratorConfig, SlowLocalConfig
from tests.left import mounts
from tests.local import needs_root

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.cluster.bring_up import Cluster
    from rl_agent.config.schema import Config

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_root]

WITHIN_S = 5.0
STAGES = ("boot", "prepare", "agent", "capture", "grade")


def configuration(state: Path) -> Config:
    """The embedded default without a policy, with slow moments."""
    config = load(precompose(CONF, "config", ["engine=demonstrator", "tracking=none", f"sandbox.state_dir={state}"]))
    config.sandbox = SlowLocalConfig(state_dir=str(state))
    config.engine = SlowDemonstratorConfig(style="claude_code")
    return config


def processes() -> set[str]:
    """Everything that runs for this test but Ray's own."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            words = " ".join(process.cmdline())
            if (
                words
                and process.status() != psutil.STATUS_ZOMBIE
                and not words.startswith("ray::")
                and "/ray/" not in words
            ):
                found.add(f"{process.pid} {words[:100]}")
        except psutil.NoSuchProcess:
            continue
    return found


def left_on_the_machine(state: Path) -> tuple[set[str], set[str], set[str]]:
    return processes(), mounts(), {path.name for path in state.iterdir()}


def request(member: int) -> EpisodeRequest:
    task = next(toy_tasks(0, "train", ["sub"])).as_task("host")
    return EpisodeRequest(task=task, slot=Slot(position=0, member=member))


@pytest.mark.timeout(300)
async def test_an_episode_that_is_cancelled_is_over_within_five_seconds_at_every_stage(tmp_path: Path) -> None:
    state = tmp_path / "state"
    config, folder = configuration(state), RunFolder(tmp_path / "run")
    async with cluster(config, folder, WARM_STARTS / "claude_code", trains=False) as run:
        assert (await run.run_episode(request(0))).status == "solved"
        quiet = left_on_the_machine(state)
        for stage in STAGES:
            seconds = await stopped(run, stage, tmp_path)
            assert seconds < WITHIN_S, stage
            assert left_on_the_machine(state) == quiet, stage
            assert await run.open_sessions() == 0, stage
        assert (await run.run_episode(request(1))).status == "solved"


async def stopped(run: Cluster, stage: str, folder: Path) -> float:
    """Seconds that it takes to end an episode in this stage."""
    (folder / CHOICE).write_text(stage)
    async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
        episode = tasks.create_task(run.run_episode(request(STAGES.index(stage) + 2)))
        while not (folder / REACHED).exists():
            assert not episode.done(), f"{stage}: {episode.result()}"
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        begun = time.monotonic()
        episode.cancel()
    for name in (CHOICE, REACHED):
        (folder / name).unlink()
    return time.monotonic() - begun
