"""Schema of `data/`: where tasks come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from omegaconf import MISSING


class ToySplit(StrEnum):
    """Which toy tasks."""

    train = "train"
    """Endless, by seed."""
    held_out = "held_out"
    """The same for every seed: the first 64 are the set of `eval/p_right`. Never generated for training."""


@dataclass(slots=True, kw_only=True)
class ToyDataConfig:
    """Generated one-file repositories with one bug each."""

    _target_: str = "rl_agent.embedded.toy.ToyTasks"
    kinds: list[str] = field(default_factory=lambda: ["sub", "add", "max", "ge", "lt", "even", "last", "up"])
    """Kinds of bug, one task of each in turn, so that every step sees every kind equally often."""
    split: ToySplit = ToySplit.train
    image: str = "host"
    """Any image with python3 will do: the hidden tests need its standard library only."""
    planted: int = 0
    """The first tasks that are broken on purpose: one that no set-up survives, one whose gold patch fails, one that is solved from
    the start, and so on. For trying `job=validate`."""
    replay: str | None = None
    """A run folder: `job=train` then trains on the rollouts recorded there, step by step, and runs no agent."""


class RowFormat(StrEnum):
    """What a row looks like."""

    generic = "generic"
    """`prompt`, `label`, `metadata`."""
    swebench = "swebench"
    swebench_pro = "swebench_pro"
    swe_smith = "swe_smith"
    r2e_gym = "r2e_gym"
    swe_rebench = "swe_rebench"
    scale_swe = "scale_swe"


class OnBadRow(StrEnum):
    """What a row that is no task does."""

    error = "error"
    """Ends the run before anything is started; all bad rows are listed."""
    skip = "skip"
    """Is left out, with a warning that counts and names them."""


@dataclass(slots=True, kw_only=True)
class RowsDataConfig:
    """Rows of a JSON-lines, JSON or Parquet file (by the end of its name). Never held in memory whole."""

    _target_: str = "rl_agent.tasks.rows.RowTasks"
    path: str = MISSING
    format: RowFormat = RowFormat.generic
    prompt_key: str = "prompt"
    label_key: str = "label"
    metadata_key: str = "metadata"
    row_defaults: dict[str, str] = field(default_factory=dict)
    """What rows lack: field -> value, for example {image: ..., workdir: /testbed, problem_statement: ...}. In a generic row they
    stand for fields of the metadata."""
    on_bad_row: OnBadRow = OnBadRow.error
    shuffle: bool = True
    """A new order each epoch; Parquet is shuffled by row groups, and within each."""
    scripts: str | None = None
    """SWE-bench Pro: the folder `run_scripts` of its repository, with run_script.sh and parser.py for each instance."""
    quarantine: str | None = None
    """A file that `job=validate` wrote: its tasks are left out."""
    replay: str | None = None
    """A run folder: `job=train` then trains on the rollouts recorded there, step by step, and runs no agent."""


SCHEMAS: Final = {"toy": ToyDataConfig, "rows": RowsDataConfig}
