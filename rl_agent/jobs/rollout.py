"""The rollout job: sample and save rollouts without training, for `data.replay`, `job=sft` and the viewer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from rl_agent.jobs.sampling import sample
from rl_agent.jobs.tally import as_text, tally, totals

if TYPE_CHECKING:
    from rl_agent.config.schema import Config
    from rl_agent.jobs.checkpoints import Policy
    from rl_agent.jobs.configs import RolloutJobConfig
    from rl_agent.run_folder import RunFolder
    from rl_agent.tracking.console import Console
    from rl_agent.tracking.tracker import Tracker


def run(config: Config, job: RolloutJobConfig, folder: RunFolder) -> None:
    """Run the job. It writes `rollouts/` and summary.json to the run folder."""
    started = time.perf_counter()

    def finish(policy: Policy, tracker: Tracker, console: Console) -> None:
        figures = totals(tally(folder.rollouts))
        figures |= {"checkpoint": policy.name, "weight_version": policy.version}
        figures["seconds"] = round(time.perf_counter() - started, 1)
        tracker.summary(figures)
        for name, value in figures.items():
            console.say(f"{name}: {as_text(value)}")
        console.say(f"rollouts: {folder.rollouts}")

    asyncio.run(sample(config, job, folder, members=config.algo.group_size, finish=finish))
