"""The record of a run: `metrics.jsonl`, wandb, and the figures of the end."""

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
"""In the run folder: under which id wandb knows the run, so that a resumed one is the same."""

SWEEP: Final = "multirun.yaml"


class Tracker:
    """Writes the same keys to `metrics.jsonl` and to wandb. Use as a context manager."""

    def __init__(self, config: TrackingConfig, folder: RunFolder, resolved: Mapping[str, Any], *, run_id: str) -> None:
        """`run_id`: what wandb shows as the run's name. Its id is another, since names come again: see `wandb_id`."""
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
            import wandb  # noqa: PLC0415 (a second of a start, where it is off)

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
            self._wandb.teardown()  # ends wandb's own process, which would stay until this one ends

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One training step. Raises ValueError for a figure that is no finite number: missing is not zero (law 4)."""
        bad = [name for name, value in metrics.items() if not math.isfinite(value)]
        if bad:
            raise ValueError(f"step {step}: not finite: {', '.join(bad)}")
        with self._folder.metrics.open("a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")
        if self._run is not None:
            self._run.log(dict(metrics), step=step)

    def table(self, name: str, rows: Sequence[Mapping[str, Any]], step: int | None = None) -> None:
        """A table in wandb; nested values as JSON. Rows have the same columns."""
        if self._run is None or not rows:
            return
        cells = [[_cell(value) for value in row.values()] for row in rows]
        self._run.log({name: self._wandb.Table(columns=list(rows[0]), data=cells, allow_mixed_types=True)}, step=step)

    def rollouts(self, step: int, groups: Sequence[Group]) -> None:
        """Wandb's table of rollouts: `tracking.rollout_table` of the step's."""
        self.table("rollouts", rollout_rows(groups, self._config.rollout_table), step)

    def summary(self, figures: Mapping[str, Any]) -> None:
        """The figures of the end."""
        write_atomic(self._folder.root / "summary.json", json.dumps(dict(figures), indent=2).encode())
        if self._run is not None:
            self._run.summary.update(dict(figures))


def wandb_id(folder: RunFolder) -> str:
    """The run's id in wandb: made once, and kept in its folder."""
    path = folder.root / WANDB_ID
    if not path.is_file():
        folder.root.mkdir(parents=True, exist_ok=True)
        write_atomic(path, uuid.uuid4().hex[:16].encode())
    return path.read_text()


def sweep_of(folder: RunFolder) -> str | None:
    """The name of the sweep that the run is part of: Hydra keeps `multirun.yaml` beside its runs' folders. None for a single run."""
    parent = folder.root.parent
    return f"sweep {parent.parent.name} {parent.name}" if (parent / SWEEP).is_file() else None


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value
