"""Random access to the rows of a file: only an index is in memory, and one row (or row group) is read at a time."""

from __future__ import annotations

import importlib
import json
from array import array
from typing import TYPE_CHECKING, Any, Final, Protocol

from rl_agent.errors import ConfigError
from rl_agent.tasks.fields import RowError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class RowStore(Protocol):
    """The rows of one file."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def blocks(self) -> Sequence[int]:
        """Return the lengths of consecutive blocks of rows that are cheap to read together."""

    def place(self, number: int) -> str:
        """Return the location of a row, for messages."""

    def read(self, number: int) -> Any:
        """Return a row as stored. Raises RowError for an unreadable row."""


def open_rows(path: Path) -> RowStore:
    """Return the store for a file, chosen by file name suffix. Raises ConfigError for an unreadable or empty file."""
    kinds: dict[str, type[JsonLines | JsonFile | ParquetFile]] = {".parquet": ParquetFile, ".json": JsonFile}
    try:
        store = kinds.get(path.suffix, JsonLines)(path)
    except OSError as error:
        raise ConfigError(f"data.path: {path}: cannot be read: {error.strerror or error}. Correct the path.") from error
    if not len(store):
        raise ConfigError(f"data.path: {path}: no rows found. Use a file with at least one row.")
    return store


class JsonLines:
    """File with one row per line. Empty lines are skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets = array("q")
        self._lines = array("q")
        place = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    self._offsets.append(place)
                    self._lines.append(number)
                place += len(line)

    def __len__(self) -> int:
        return len(self._offsets)

    def blocks(self) -> Sequence[int]:
        """See `RowStore.blocks`."""
        return (len(self),)

    def place(self, number: int) -> str:
        """See `RowStore.place`."""
        return f"{self._path}, line {self._lines[number]}"

    def read(self, number: int) -> Any:
        """See `RowStore.read`."""
        with self._path.open("rb") as file:
            file.seek(self._offsets[number])
            return parse_json(file.readline())


class JsonFile:
    """JSON file with one row or a list of rows. Held in memory as a whole, so only for small files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            content = parse_json(path.read_bytes())
        except RowError as error:
            raise ConfigError(f"{path}: {error}. Name a file with one row per line *.jsonl.") from error
        self._rows = content if isinstance(content, list) else [content]

    def __len__(self) -> int:
        return len(self._rows)

    def blocks(self) -> Sequence[int]:
        """See `RowStore.blocks`."""
        return (len(self),)

    def place(self, number: int) -> str:
        """See `RowStore.place`."""
        return f"{self._path}, row {number + 1}"

    def read(self, number: int) -> Any:
        """See `RowStore.read`."""
        return self._rows[number]


class ParquetFile:
    """Parquet file. Reads one row group at a time and caches the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            module = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            raise ConfigError(
                f"data.path: {path}: Parquet requires pyarrow. Run `pip install 'rl_agent[parquet]'`."
            ) from error
        try:
            self._file = module.ParquetFile(path)
        except ValueError as error:  # includes pyarrow's ArrowInvalid
            raise ConfigError(f"data.path: {path}: not a Parquet file ({error})") from error
        metadata = self._file.metadata
        self._lengths = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._group = -1
        self._rows: list[Any] = []

    def __len__(self) -> int:
        return sum(self._lengths)

    def blocks(self) -> Sequence[int]:
        """See `RowStore.blocks`."""
        return tuple(self._lengths)

    def place(self, number: int) -> str:
        """See `RowStore.place`."""
        return f"{self._path}, row {number + 1}"

    def read(self, number: int) -> Any:
        """See `RowStore.read`."""
        group, first = 0, 0
        while number >= first + self._lengths[group]:
            first += self._lengths[group]
            group += 1
        if group != self._group:
            self._rows, self._group = self._file.read_row_group(group).to_pylist(), group
        return self._rows[number - first]


DEEPEST: Final = "maximum recursion depth"


def parse_json(content: bytes) -> Any:
    """Parse a JSON text. Raises RowError if it is invalid."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RowError(f"not a JSON object ({DEEPEST if isinstance(error, RecursionError) else error})") from error
