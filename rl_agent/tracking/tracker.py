"""Tracker of a run: metrics.jsonl, summary.json and wandb."""

from __future__ import annotations

import json
import math
import uuid
from typing import TYPE_CHECKING, Any, Final, Self

from rl_agent.config.tracking import WandbMode
from rl_agent.run_folder import write_atomic
from rl_agent.secrets import require
from rl_agent.tracking.rollout_table import rollout_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from rl_agent.config.tracking import TrackingConfig
    from rl_agent.rollout.group import Group
    from rl_agent.run_folder import RunFolder

WANDB_ID: Final = "wandb_id.txt"
"""File in the run folder with the wandb id, so that a resumed run continues the same wandb run."""

SWEEP: Final = "multirun.yaml"
"""File that Hydra writes beside the run folders of a sweep."""


class Tracker:
    """Tracker that writes the same keys to metrics.jsonl and to wandb. Use as a context manager."""

    def __init__(self, config: TrackingConfig, folder: RunFolder, resolved: Mapping[str, Any], *, run_id: str) -> None:
        """`run_id`: name of the run in wandb. Names are not unique, so the id differs; see `wandb_id`."""
        self._config = config
        self._folder = folder
        self._resolved = resolved
        self._run_id = run_id
        self._wandb: Any = None
        self._run: Any = None

    def __enter__(self) -> Self:
        if self._config.wandb is WandbMode.online:
            require("WANDB_API_KEY", "tracking.wandb=online")
        if self._config.wandb is not WandbMode.disabled:
            import wandb  # noqa: PLC0415 (takes a second, which runs without wandb save)

            self._wandb = wandb
            self._run = wandb.init(
                mode="online" if self._config.wandb is WandbMode.online else "offline",
                project=self._config.project,
                entity=self._config.entity,
                group=self._config.group or sweep_of(self._folder),
                tags=self._config.tags,
                name=self._run_id,
                id=wandb_id(self._folder),
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
            self._wandb.teardown()  # ends wandb's own process, which would otherwise live as long as this one

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a training step.

        Raises ValueError for a value that is not finite: missing is not zero (law 4).
        """
        bad = [name for name, value in metrics.items() if not math.isfinite(value)]
        if bad:
            raise ValueError(f"step {step}: metrics are not finite: {', '.join(bad)}")
        with self._folder.metrics.open("a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")
        if self._run is not None:
            self._run.log(dict(metrics), step=step)

    def table(self, name: str, rows: Sequence[Mapping[str, Any]], step: int | None = None) -> None:
        """Log a table to wandb, with nested values as JSON. All rows have the same columns."""
        if self._run is None or not rows:
            return
        cells = [[_cell(value) for value in row.values()] for row in rows]
        self._run.log({name: self._wandb.Table(columns=list(rows[0]), data=cells, allow_mixed_types=True)}, step=step)

    def rollouts(self, step: int, groups: Sequence[Group]) -> None:
        """Log `tracking.rollout_table` rollouts of a step to wandb."""
        self.table("rollouts", rollout_rows(groups, self._config.rollout_table), step)

    def summary(self, figures: Mapping[str, Any]) -> None:
        """Write the final figures of the run."""
        write_atomic(self._folder.root / "summary.json", json.dumps(dict(figures), indent=2).encode())
        if self._run is not None:
            self._run.summary.update(dict(figures))


def wandb_id(folder: RunFolder) -> str:
    """Return the wandb id of the run. It is created once and kept in the run folder."""
    path = folder.root / WANDB_ID
    if not path.is_file():
        folder.root.mkdir(parents=True, exist_ok=True)
        write_atomic(path, uuid.uuid4().hex[:16].encode())
    return path.read_text()


def sweep_of(folder: RunFolder) -> str | None:
    """Return the name of the sweep that the run belongs to, or None for a single run."""
    parent = folder.root.parent
    return f"sweep {parent.parent.name} {parent.name}" if (parent / SWEEP).is_file() else None


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value
