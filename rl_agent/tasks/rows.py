"""Tasks from a file of rows: streamed, shuffled by seed, entered anywhere. Every bad row is named with file, line and field."""

from __future__ import annotations

import itertools
import json
import logging
from array import array
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from rl_agent.config.data import OnBadRow, RowFormat
from rl_agent.errors import ConfigError
from rl_agent.tasks.fields import RowError
from rl_agent.tasks.formats import READERS, Place
from rl_agent.tasks.store import open_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rl_agent.tasks.store import RowStore
    from rl_agent.tasks.task import Task

log = logging.getLogger(__name__)

BAD_ROWS_SHOWN: Final = 20


class RowTasks:
    """Rows in a new order each epoch. See `RowsDataConfig`."""

    def __init__(
        self,
        *,
        path: str,
        format: RowFormat,
        prompt_key: str,
        label_key: str,
        metadata_key: str,
        row_defaults: Mapping[str, str],
        on_bad_row: OnBadRow,
        shuffle: bool,
        scripts: str | None,
        quarantine: str | None,
        replay: str | None = None,
    ) -> None:
        self.path = Path(path)
        self._format = format
        self._keys = (prompt_key, label_key, metadata_key)
        self._defaults = dict(row_defaults)
        self._on_bad_row = on_bad_row
        self._shuffle = shuffle
        self._scripts = None if scripts is None else Path(scripts)
        self._quarantine = None if quarantine is None else Path(quarantine)
        self.replay = replay
        self._store: RowStore | None = None
        self._left_out: frozenset[int] = frozenset()
        self._last_order: tuple[str, array[int]] | None = None

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        """See TaskSource. The stream goes through all good rows in an order of its own each epoch."""
        store = self._rows()
        epoch, position = divmod(start, len(store) - len(self._left_out))
        while True:
            order = self._order(store, f"{seed}/{epoch}")
            good = (number for number in order if number not in self._left_out)
            for number in itertools.islice(good, position, None):
                yield self._task(store, number)
            epoch, position = epoch + 1, 0

    def once(self) -> Iterator[Task]:
        """Every good row once, in the order of the file."""
        store = self._rows()
        for number in range(len(store)):
            if number not in self._left_out:
                yield self._task(store, number)

    def _order(self, store: RowStore, seed: str) -> array[int]:
        """All rows, block after block; both are shuffled. The last order is kept: a run asks for it again each step."""
        if self._last_order is None or self._last_order[0] != seed:
            rng = Random(seed)  # noqa: S311 (not for secrets)
            starts, first = [], 0
            for length in store.blocks():
                starts.append((first, length))
                first += length
            if self._shuffle:
                rng.shuffle(starts)
            order = array("q")
            for first, length in starts:
                numbers = array("q", range(first, first + length))
                if self._shuffle:
                    rng.shuffle(numbers)
                order.extend(numbers)
            self._last_order = (seed, order)
        return self._last_order[1]

    def _rows(self) -> RowStore:
        """The store; its rows are checked the first time, so that a bad one ends the run now and not hours into it."""
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
                raise ConfigError(f"data.path={self.path}: no row is left ({len(left_out)} of them are in quarantine)")
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
        if self._on_bad_row is OnBadRow.error:
            raise ConfigError(
                "\n".join(shown) + "\nRemedy: correct them, set data.row_defaults, or data.on_bad_row=skip"
            )
        log.warning("%d of %d rows are left out:\n%s", len(bad), count, "\n".join(shown))

    def _quarantined(self) -> frozenset[str]:
        if self._quarantine is None:
            return frozenset()
        try:
            lines = self._quarantine.read_text().splitlines()
            return frozenset(str(json.loads(line)["task_id"]) for line in lines if line.strip())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"data.quarantine={self._quarantine} cannot be read: {error!r}") from error

    def _task(self, store: RowStore, number: int) -> Task:
        prompt_key, label_key, metadata_key = self._keys
        place = Place(
            prompt_key=prompt_key,
            label_key=label_key,
            metadata_key=metadata_key,
            folder=self.path.parent,
            scripts=self._scripts,
            fallback_id=f"{self.path.stem}-{number + 1}",
            defaults=self._defaults,
        )
        try:
            return READERS[self._format](self._read(store, number), place)
        except RowError as error:
            raise ConfigError(f"{store.place(number)}: {error}") from error

    def _read(self, store: RowStore, number: int) -> dict[str, Any]:
        """The row, with `data.row_defaults` where a published one has nothing."""
        row = store.read(number)
        if not isinstance(row, dict):
            raise RowError(f"not a JSON object but {type(row).__name__}")
        if self._format is RowFormat.generic:  # which knows where to look before it takes a default
            return row
        return {**row, **{key: value for key, value in self._defaults.items() if row.get(key) in (None, "")}}
