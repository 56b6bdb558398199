"""Any process of a run may be killed at any moment: the run goes on or resumes, nothing is lost or trained twice, nothing is left.

Real Ray, real CLI, real sandboxes, real Megatron-core; the engine is the script that solves the toy tasks, and the algorithm learns its tokens
by heart, so that the curve of a run is the same however often it is killed.
"""

from __future__ import annotations

import json
import logging
import random
import re
import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from rl_agent.rollout.ledger import RolloutLedger
from rl_agent.run_folder import CONFIG
from tests.e2e.command import SCRIPTED, Command
from tests.local import needs_root

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

pytestmark = [needs_root, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

STEPS, TASKS = 3, 2
EVENTS = 2 * STEPS * TASKS + STEPS
"""Lines of the ledger of an undisturbed run: each rollout starts and ends, each step is consumed; checkpoints are more."""
VICTIMS = {
    "controller": r"-m rl_agent ",
    "rollout worker": r"ray::RolloutWorker",
    "policy server": r"ray::PolicyServer",
    "trainer rank": r"ray::TrainerRank",
    "agent CLI": r"(^|/)(claude|codex)\b",
    "sandbox init": r"(^|/)bwrap ",
    "raylet": r"/raylet/raylet ",
    "gcs": r"/gcs/gcs_server ",
}
SAMPLE = (
    ("controller", 9),
    ("rollout worker", 4),
    ("policy server", 5),
    ("trainer rank", 7),
    ("agent CLI", 6),
    ("raylet", 8),
)
"""Process to kill, and the number of ledger lines before the kill."""
IN_EVERY_RUN = "controller"
"""The victim in `SAMPLE` that `make test` kills: the run must be resumed after it."""


def command(tmp_path: Path, *more: str) -> Command:
    return Command(
        output=tmp_path / "run",
        overrides=(
            *SCRIPTED,
            "algo.max_staleness=1",
            "algo.lr=0.001",
            "engine.delay_s=0.2",
            f"job.steps={STEPS}",
            "job.save_every=1",
            f"rollout.tasks_per_step={TASKS}",
            "rollout.max_concurrent=2",
            "rollout.failures.backoff_s=0.2",
            "rollout.failures.outage_probe_s=2",
            "harness.time_budget_s=120",
            f"sandbox.state_dir={tmp_path}/state",
            *more,
        ),
    )


def lines(run: Command) -> int:
    path = run.output / "ledger.jsonl"
    return len(path.read_text().splitlines()) if path.is_file() else 0


def find(run: Command, pattern: str) -> list[psutil.Process]:
    """Processes of the run whose command line is like that, the youngest last."""
    found = []
    for process in run.family():
        try:
            if re.search(pattern, " ".join(process.cmdline()) + " "):
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill(run: Command, victim: str, after: int) -> bool:
    """Kill one such process once the ledger has so many lines; False if the run was over before there was one."""
    assert run.process is not None
    while run.process.poll() is None:
        if lines(run) >= after and (found := find(run, VICTIMS[victim])):
            try:
                found[-1].send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
            return True
        time.sleep(0.02)
    return False


def finish(tmp_path: Path, run: Command, story: list[str]) -> None:
    """Let it end; where that is with an error, resume it, or start it again if it was killed before it had a folder."""
    since = time.monotonic()
    done = run.finish(timeout=300)
    took = time.monotonic() - since
    run.assert_nothing_left()
    if done.returncode != 0:
        story.append(f"ended after {took:.1f} s with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
        begun = (run.output / CONFIG).is_file()
        assert "error: " in done.stderr or not lines(run), "an end without a word"
        again = command(tmp_path, f"resume={run.output}") if begun else command(tmp_path)
        done = again.run(timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


def check(tmp_path: Path, run: Command, *, solved: bool = True) -> None:
    """The books balance, every step trained once and in order, nothing is left.

    `solved`: all rollouts are. An agent that is killed in the middle is graded by what it had done.
    """
    ledger = RolloutLedger(run.output / "ledger.jsonl")
    counts = ledger.state.balance()
    assert counts["running"] == 0, counts
    positions = [p for step in sorted(ledger.state.consumed) for p in ledger.state.consumed[step]]
    assert positions == list(range(STEPS * TASKS))
    ledger.close()
    assert [record["step"] for record in run.metrics()] == list(range(1, STEPS + 1))
    statuses = [
        json.loads(line)["status"]
        for step in range(1, STEPS + 1)
        for line in (run.output / "rollouts" / f"step_{step:05d}.jsonl").read_text().splitlines()
    ]
    assert len(statuses) == STEPS * TASKS
    others = [status for status in statuses if status != "solved"]
    assert len(others) <= (0 if solved else 1), others
    assert set(others) <= {"failed", "empty_diff"}
    assert not list((run.output / "buffer").iterdir()), "rollouts left in the buffer"
    mounted = [part.mountpoint for part in psutil.disk_partitions(all=True) if str(tmp_path) in part.mountpoint]
    assert not mounted, f"mounts left behind: {mounted}"
    left = [path for path in (tmp_path / "state").glob("*/*") if path.is_dir()]
    assert not left, f"sandboxes left behind: {left}"


def curve(run: Command) -> list[float]:
    return [record["eval/p_right"] for record in run.metrics()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = command(folder)
    done = run.run(timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    check(folder, run)
    values = curve(run)
    assert values[0] != values[-1], "nothing was learned, so an equal curve would show nothing"
    return values


def killed(tmp_path: Path, victim: str, after: int, undisturbed: list[float]) -> str:
    run = command(tmp_path)
    run.start()
    story = [f"{victim} after {after} lines"]
    if not kill(run, victim, after):
        story.append("the run was over before")
    finish(tmp_path, run, story)
    agent = victim == "agent CLI"
    check(tmp_path, run, solved=not agent)
    if not agent:
        assert curve(run) == pytest.approx(undisturbed, abs=1e-6)
    return ", ".join(story)


@pytest.mark.parametrize(
    ("victim", "after"),
    [
        pytest.param(victim, after, id=victim.replace(" ", "-"), marks=[pytest.mark.long] * (victim != IN_EVERY_RUN))
        for victim, after in SAMPLE
    ],
)
def test_a_killed_process_costs_time_only(victim: str, after: int, tmp_path: Path, undisturbed: list[float]) -> None:
    log.warning(killed(tmp_path, victim, after, undisturbed))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_process_killed_at_random_moments_costs_time_only(
    victim: str, tmp_path: Path, undisturbed: list[float]
) -> None:
    moments = random.Random(victim)
    for number in range(7):
        folder = tmp_path / str(number)
        log.warning(killed(folder, victim, moments.randrange(EVENTS), undisturbed))  # in the report of `-rA`, too
