"""The record of a run: `metrics.jsonl`, wandb, and the figures of the end."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Self

import wandb

from rl_agent.config.tracking import WandbMode
from rl_agent.run_folder import write_atomic
from rl_agent.secrets import require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from rl_agent.config.tracking import TrackingConfig
    from rl_agent.run_folder import RunFolder


class Tracker:
    """Writes the same keys to `metrics.jsonl` and to wandb. Use as a context manager."""

    def __init__(self, config: TrackingConfig, folder: RunFolder, resolved: Mapping[str, Any], *, run_id: str) -> None:
        self._config = config
        self._folder = folder
        self._resolved = resolved
        self._run_id = run_id
        self._run: Any = None

    def __enter__(self) -> Self:
        if self._config.wandb is WandbMode.online:
            require("WANDB_API_KEY", "tracking.wandb=online")
        if self._config.wandb is not WandbMode.disabled:
            self._run = wandb.init(
                mode="online" if self._config.wandb is WandbMode.online else "offline",
                project=self._config.project,
                entity=self._config.entity,
                group=self._config.group,
                tags=self._config.tags,
                id=self._run_id,
                resume="allow" if self._config.wandb is WandbMode.online else None,
                dir=str(self._folder.root),
                config=dict(self._resolved),
                settings=wandb.Settings(
                    silent=True, console="off", disable_git=True, save_code=False, x_disable_machine_info=True
                ),
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if error is None else 1)
            self._run = None
            wandb.teardown()  # ends wandb's own process, which would stay until this one ends

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One training step. Raises ValueError for a figure that is no finite number: missing is not zero (law 4)."""
        bad = [name for name, value in metrics.items() if not math.isfinite(value)]
        if bad:
            raise ValueError(f"step {step}: not finite: {', '.join(bad)}")
        with self._folder.metrics.open("a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")
        if self._run is not None:
            self._run.log(dict(metrics), step=step)

    def summary(self, figures: Mapping[str, Any]) -> None:
        """The figures of the end."""
        write_atomic(self._folder.root / "summary.json", json.dumps(dict(figures), indent=2).encode())
        if self._run is not None:
            self._run.summary.update(dict(figures))
