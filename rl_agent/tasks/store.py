"""Rows of a file at random, without holding them: an index in memory, and one row (or one row group) read at a time."""

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
        """Lengths of the runs of rows that are cheap to read together."""

    def place(self, number: int) -> str:
        """Return the location of a row, for messages."""

    def read(self, number: int) -> Any:
        """A row as it stands. Raises RowError for one that cannot be read."""


def open_rows(path: Path) -> RowStore:
    """The store for a file, by the end of its name. Raises ConfigError for one that cannot be read or holds nothing."""
    kinds: dict[str, type[JsonLines | JsonFile | ParquetFile]] = {".parquet": ParquetFile, ".json": JsonFile}
    try:
        store = kinds.get(path.suffix, JsonLines)(path)
    except OSError as error:
        raise ConfigError(
            f"data.path={path} cannot be read: {error.strerror or error}. Remedy: correct the path."
        ) from error
    if not len(store):
        raise ConfigError(f"data.path={path} holds no row")
    return store


class JsonLines:
    """A row a line; empty lines are no rows."""

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
    """One JSON text: a row, or a list of rows. Read whole: for single examples."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            content = parse_json(path.read_bytes())
        except RowError as error:
            raise ConfigError(f"{path}: {error}. Remedy: a file of one row a line is called *.jsonl.") from error
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
    """A row group is read at a time, and the last one is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            module = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            raise ConfigError(
                f"data.path={path} is a Parquet file, which needs pyarrow. Remedy: pip install 'rl_agent[parquet]'"
            ) from error
        try:
            self._file = module.ParquetFile(path)
        except ValueError as error:  # pyarrow's ArrowInvalid is one
            raise ConfigError(f"data.path={path} is no Parquet file: {error}") from error
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
    """JSON text. Raises RowError for anything else."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RowError(f"not a JSON object ({DEEPEST if isinstance(error, RecursionError) else error})") from error
