"""The sandbox provider is out for a while in the middle of a step: that costs time, not rollouts, and shows."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from rl_agent.rollout.ledger import RolloutLedger
from tests.e2e.command import Command
from tests.gateway_faults import Fault, FaultKind
from tests.local import GATEWAY_KEY, gateway, needs_root

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_root, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

STEPS, TASKS, GROUP = 2, 3, 2


@dataclass(slots=True, kw_only=True)
class Outage(Fault):
    """Every request is answered with 503 while it lasts."""

    down: bool = False

    def applies(self, line: str) -> bool:
        self.seen += self.down
        return self.down


def wait_for_a_rollout(run: Command, ledger: Path) -> None:
    """Until some have begun, or the run has ended."""
    assert run.process is not None
    while run.process.poll() is None and not (ledger.is_file() and len(ledger.read_text().splitlines()) > 1):
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("seconds", [20, pytest.param(60, marks=pytest.mark.long)])
async def test_an_outage_of_the_provider_costs_time_and_no_rollout(
    seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("E2B_API_KEY", GATEWAY_KEY)
    outage = Outage(kind=FaultKind.STATUS, route=".*")
    async with gateway(tmp_path, faults=[outage]) as opened:
        run = Command(
            output=tmp_path / "run",
            overrides=(
                "sandbox=e2b",
                f"sandbox.api_url={opened.url}",
                f"sandbox.sandbox_url={opened.url}",
                f"sandbox.state_dir={tmp_path}/e2b",
                "engine=demonstrator",
                "engine.delay_s=1",
                "debug=fast",
                "harness.time_budget_s=180",
                f"job.steps={STEPS}",
                f"rollout.tasks_per_step={TASKS}",
                f"algo.group_size={GROUP}",
                "rollout.failures.outage_after=3",
                "rollout.failures.outage_probe_s=3",
                "tracking=none",
            ),
        )
        run.start()
        ledger = run.output / "ledger.jsonl"
        await asyncio.to_thread(wait_for_a_rollout, run, ledger)
        outage.down = True
        await asyncio.sleep(seconds)
        outage.down = False
        done = await asyncio.to_thread(run.finish, 600)
    run.assert_nothing_left()
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert outage.seen > 0
    metrics = run.metrics()
    assert [record["rollout/status/solved"] for record in metrics] == [TASKS * GROUP] * STEPS, "no rollout is lost"
    assert metrics[-1]["failures/sandbox_outage_seconds"] > seconds / 2
    assert metrics[0]["failures/sandbox"] >= 3
    assert "nothing starts until it works again" in (run.output / "run.log").read_text()
    rollouts = RolloutLedger(ledger)
    counts = rollouts.state.balance()
    rollouts.close()
    assert counts["finished"] == STEPS * TASKS * GROUP
    assert counts["failed"] == sum(record.get("failures/sandbox", 0) for record in metrics)
