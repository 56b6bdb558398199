"""Console output of a run: a live view on a terminal, plain lines elsewhere, a table at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

COLUMNS: Final = (
    ("reward", "reward/mean", "{:.2f}"),
    ("solved", "reward/solved_rate", "{:.0%}"),
    ("p(right)", "eval/p_right", "{:.3f}"),
    ("turns", "rollout/turns_mean", "{:.1f}"),
    ("loss", "train/loss", "{:+.4f}"),
    ("grad", "train/grad_norm", "{:.2f}"),
    ("entropy", "train/entropy", "{:.3f}"),
    ("|Δ logprob|", "train/logprob_diff_max", "{:.0e}"),
    ("rollout s", "time/rollout", "{:.1f}"),
    ("train s", "time/train", "{:.1f}"),
    ("push s", "time/push", "{:.2f}"),
    ("tok/s", "tokens/per_second", "{:.0f}"),
)
"""Column heading, metric, format."""

WIDTH: Final = 160
"""Table width without a terminal, where rich would fold at 80 characters."""


class Console:
    """Console view of one run. Use as a context manager."""

    def __init__(self, *, steps: int, first_step: int, rollouts_per_step: int, live: bool) -> None:
        self._rich = RichConsole(highlight=False)
        if not self._rich.is_terminal:
            self._rich.width = WIDTH
        self._live = live and self._rich.is_terminal
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._rich,
            disable=not self._live,
        )
        self._steps = self._progress.add_task("steps", total=steps, completed=first_step, note="")
        self._rollouts = self._progress.add_task("rollouts", total=rollouts_per_step, note="")
        self._statuses: dict[str, int] = {}
        self._total = steps

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line."""
        self._rich.print(text, markup=False, soft_wrap=True)

    def rollout(self, status: str) -> None:
        """Count a finished rollout."""
        self._statuses[status] = self._statuses.get(status, 0) + 1
        note = "  ".join(f"{name} {count}" for name, count in sorted(self._statuses.items()))
        self._progress.update(self._rollouts, advance=1, note=note)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print the metrics of a finished training step."""
        shown = "  ".join(f"{title} {form.format(metrics[name])}" for title, name, form in COLUMNS if name in metrics)
        statuses = "  ".join(
            f"{name.removeprefix('rollout/status/')} {int(count)}"
            for name, count in sorted(metrics.items())
            if name.startswith("rollout/status/")
        )
        self.say(f"step {step:>3}/{self._total}  {shown}  [{statuses}]")
        self._progress.update(self._steps, completed=step)
        self._progress.reset(self._rollouts)
        self._statuses.clear()

    def table(self, title: str, rows: Sequence[Mapping[str, str]]) -> None:
        """Print a table. All rows have the same columns."""
        table = Table(title=title, title_justify="left")
        for name in rows[0] if rows else ():
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(Text(value) for value in row.values()))
        self._rich.print(table)

    def summary(self, history: Sequence[Mapping[str, float]], figures: Mapping[str, str]) -> None:
        """Print the final table: means of the first and last three steps, then one line per figure."""
        table = Table(title="summary", title_justify="left")
        table.add_column("metric")
        for title in ("first 3 steps", "last 3 steps"):
            table.add_column(title, justify="right")
        for title, name, form in COLUMNS:
            values = [record[name] for record in history if name in record]
            if values:
                first, last = values[:3], values[-3:]
                table.add_row(title, form.format(sum(first) / len(first)), form.format(sum(last) / len(last)))
        self._rich.print(table)
        for name, value in figures.items():
            self.say(f"{name}: {value}")
