"""What a checkpoint relies on is on the disk before the checkpoint counts, even if the machine stops."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rl_agent.jobs.progress import Progress
from rl_agent.rollout.ledger import RolloutLedger
from rl_agent.rollout.scheduler import Step
from rl_agent.run_folder import STATE, RunFolder
from tests.unit.config.test_composition import composed


class Trainers:
    """Writes one file of weights."""

    folder = Path()

    async def begin_save(self, folder: Path) -> None:
        self.folder = folder

    async def finish_save(self) -> None:
        (self.folder / "weights").write_text("w")


async def test_the_ledger_is_on_the_disk_before_a_checkpoint_counts_and_its_end_after(
    tmp_path: Path, disk: list[str]
) -> None:
    nobody: Any = None
    folder, trainers, told = RunFolder(tmp_path), Trainers(), []
    driver: Any = RolloutLedger(folder.ledger)
    config = composed("job.save_every=1", "job.keep_checkpoints=1")
    job: Any = config.job
    progress = Progress(config, job, folder, tracker=nobody, console=nobody, held_out=None, last_step=2)
    for step in (1, 2):
        driver.consumed(Step(number=step - 1, positions=(step,), dropped=()))
        async with asyncio.TaskGroup() as tasks:
            await progress.save(trainers, step, tasks, driver)  # type: ignore[arg-type]
        told.append(list(disk))
        disk.clear()
    assert told[0] == [
        "sync ledger.jsonl",
        "sync weights",
        "sync step_00001",
        f"sync {STATE}.partial",
        STATE,
        "sync step_00001",
        "sync ledger.jsonl",
    ]
    assert told[1][: len(told[0]) - 1] == [event.replace("00001", "00002") for event in told[0][:-1]]
    assert told[1][len(told[0]) - 1] == f"remove {STATE}", "only now may the one before go"
    assert '"event": "saved"' in folder.ledger.read_text().splitlines()[-1]
