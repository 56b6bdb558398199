"""Tasks from a file of rows: streamed, shuffled, seekable. Errors name file, line and field of an invalid row."""

from __future__ import annotations

import itertools
import json
import logging
from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from omegaconf import MISSING
from typing_extensions import override

from rl_agent.config.data import DataConfig
from rl_agent.config.plug_in import Problem, existing
from rl_agent.errors import ConfigError
from rl_agent.tasks.fields import RowError
from rl_agent.tasks.formats import READERS, Place, RowFormat
from rl_agent.tasks.store import open_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rl_agent.config.schema import Config
    from rl_agent.tasks.store import RowStore
    from rl_agent.tasks.task import Task

log = logging.getLogger(__name__)

BAD_ROWS_SHOWN: Final = 20


class OnBadRow(StrEnum):
    """Handling of invalid rows."""

    error = "error"
    """The run ends before anything starts. All invalid rows are listed."""
    skip = "skip"
    """The row is skipped. A warning counts and lists the skipped rows."""


@dataclass(kw_only=True)
class RowsConfig(DataConfig):
    """Rows of a JSON-lines, JSON or Parquet file (by file name suffix). The file is never held in memory as a whole."""

    path: str = MISSING
    format: RowFormat = RowFormat.generic
    prompt_key: str = "prompt"
    label_key: str = "label"
    metadata_key: str = "metadata"
    row_defaults: dict[str, str] = field(default_factory=dict)
    """Values of missing fields, e.g. {image: ..., workdir: /testbed, problem_statement: ...}. In generic rows they
    apply to the metadata."""
    on_bad_row: OnBadRow = OnBadRow.error
    shuffle: bool = True
    """Use a new order in each epoch. Parquet is shuffled by row group, and within each group."""
    scripts: str | None = None
    """SWE-bench Pro: the `run_scripts` folder of its repository, with run_script.sh and parser.py per instance."""
    quarantine: str | None = None
    """File written by `job=validate`. Its tasks are skipped."""

    @override
    def build(self) -> RowTasks:
        return RowTasks(self)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from existing(data__path=self.path, data__scripts=self.scripts, data__quarantine=self.quarantine)


class RowTasks:
    """Rows in a new order each epoch. See `RowsConfig`."""

    def __init__(self, config: RowsConfig) -> None:
        self.path = Path(config.path)
        self._config = config
        self._keys = (config.prompt_key, config.label_key, config.metadata_key)
        self._scripts = None if config.scripts is None else Path(config.scripts)
        self._quarantine = None if config.quarantine is None else Path(config.quarantine)
        self._store: RowStore | None = None
        self._left_out: frozenset[int] = frozenset()
        self._last_order: tuple[str, array[int]] | None = None

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        """See `TaskSource`. Each epoch has all valid rows in a new order."""
        store = self._rows()
        epoch, position = divmod(start, len(store) - len(self._left_out))
        while True:
            order = self._order(store, f"{seed}/{epoch}")
            good = (number for number in order if number not in self._left_out)
            for number in itertools.islice(good, position, None):
                yield self._task(store, number)
            epoch, position = epoch + 1, 0

    def once(self) -> Iterator[Task]:
        """Yield every valid row once, in file order."""
        store = self._rows()
        for number in range(len(store)):
            if number not in self._left_out:
                yield self._task(store, number)

    def _order(self, store: RowStore, seed: str) -> array[int]:
        """Return all rows, with blocks and the rows in each shuffled. Caches the last order for the next step."""
        if self._last_order is None or self._last_order[0] != seed:
            rng = Random(seed)  # noqa: S311 (not for secrets)
            starts, first = [], 0
            for length in store.blocks():
                starts.append((first, length))
                first += length
            if self._config.shuffle:
                rng.shuffle(starts)
            order = array("q")
            for first, length in starts:
                numbers = array("q", range(first, first + length))
                if self._config.shuffle:
                    rng.shuffle(numbers)
                order.extend(numbers)
            self._last_order = (seed, order)
        return self._last_order[1]

    def _rows(self) -> RowStore:
        """Return the store. The first call checks all rows, so that an invalid row ends the run at its start."""
        if self._store is None:
            store = open_rows(self.path)
            unwanted = self._quarantined()
            bad: dict[int, str] = {}
            left_out: set[int] = set()
            for number in range(len(store)):
                try:
                    if self._task(store, number).task_id in unwanted:
                        left_out.add(number)
                except ConfigError as error:
                    bad[number] = str(error)
            self._report(bad, len(store))
            if len(left_out) + len(bad) == len(store):
                raise ConfigError(f"data.path: {self.path}: no valid row is left ({len(left_out)} are in quarantine)")
            if left_out:
                log.warning("%s: %d rows are in quarantine (%s)", self.path, len(left_out), self._quarantine)
            self._left_out = frozenset(left_out | bad.keys())
            self._store = store
        return self._store

    def _report(self, bad: Mapping[int, str], count: int) -> None:
        if not bad:
            return
        shown = list(bad.values())[:BAD_ROWS_SHOWN]
        if len(bad) > len(shown):
            shown.append(f"... and {len(bad) - len(shown)} more bad rows")
        if self._config.on_bad_row is OnBadRow.error:
            raise ConfigError(
                "\n".join(shown) + "\nCorrect the rows, set data.row_defaults, or set data.on_bad_row=skip."
            )
        log.warning("skipped %d of %d rows:\n%s", len(bad), count, "\n".join(shown))

    def _quarantined(self) -> frozenset[str]:
        if self._quarantine is None:
            return frozenset()
        try:
            lines = self._quarantine.read_text().splitlines()
            return frozenset(str(json.loads(line)["task_id"]) for line in lines if line.strip())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"data.quarantine: {self._quarantine}: cannot be read: {error!r}") from error

    def _task(self, store: RowStore, number: int) -> Task:
        prompt_key, label_key, metadata_key = self._keys
        place = Place(
            prompt_key=prompt_key,
            label_key=label_key,
            metadata_key=metadata_key,
            folder=self.path.parent,
            scripts=self._scripts,
            fallback_id=f"{self.path.stem}-{number + 1}",
            defaults=self._config.row_defaults,
        )
        try:
            return READERS[self._config.format](self._read(store, number), place)
        except RowError as error:
            raise ConfigError(f"{store.place(number)}: {error}") from error

    def _read(self, store: RowStore, number: int) -> dict[str, Any]:
        """Return a row. `data.row_defaults` fills in the missing fields of published rows."""
        row = store.read(number)
        if not isinstance(row, dict):
            raise RowError(f"expected a JSON object, got {type(row).__name__}")
        if self._config.format is RowFormat.generic:  # its reader applies the defaults itself
            return row
        return {**row, **{key: value for key, value in self._config.row_defaults.items() if row.get(key) in (None, "")}}
