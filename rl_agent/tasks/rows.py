"""Tasks from a JSON-lines file. Only the offsets of its lines are held in memory; every error names file and line."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from rl_agent.errors import ConfigError
from rl_agent.tasks.task import GraderSpec, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class JsonlTasks:
    """Rows in a new order each epoch. See `JsonlDataConfig`.

    A row: `prompt` (the problem statement), optional `label`, and `metadata` with `image`, `workdir`, `eval_cmd`, optional
    `problem_statement` (goes before `prompt`), `pre_commands` (a string or a list) and `files` (hidden, path -> text).
    """

    def __init__(self, *, path: str, prompt_key: str, label_key: str, metadata_key: str) -> None:
        self.path = Path(path)
        self.prompt_key = prompt_key
        self.label_key = label_key
        self.metadata_key = metadata_key
        self._offsets: array[int] | None = None

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        """See TaskSource. The stream goes through all rows in an order of its own each epoch."""
        offsets = self._lines()
        epoch, position = divmod(start, len(offsets))
        while True:
            order = list(range(len(offsets)))
            Random(f"{seed}/{epoch}").shuffle(order)  # noqa: S311 (not for secrets)
            for number in order[position:]:
                yield self._task(number, offsets[number])
            epoch, position = epoch + 1, 0

    def _lines(self) -> array[int]:
        if self._offsets is None:
            offsets, place = array("q"), 0
            try:
                with self.path.open("rb") as file:
                    for line in file:
                        if line.strip():
                            offsets.append(place)
                        place += len(line)
            except OSError as error:
                raise ConfigError(
                    f"data.path={self.path} cannot be read: {error.strerror}. Remedy: correct the path."
                ) from error
            if not offsets:
                raise ConfigError(f"data.path={self.path} holds no row")
            for number, offset in enumerate(offsets):
                self._task(number, offset)  # a bad row ends the run now, not hours into it
            self._offsets = offsets
        return self._offsets

    def _task(self, number: int, offset: int) -> Task:
        with self.path.open("rb") as file:
            file.seek(offset)
            line = file.readline()
        where = f"{self.path}, row {number + 1}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{where}: not a JSON object ({error})") from error
        if not isinstance(row, dict):
            raise ConfigError(f"{where}: not a JSON object but {type(row).__name__}")
        metadata = _field(row, self.metadata_key, dict, where)
        statement = metadata.get("problem_statement") or _field(row, self.prompt_key, str, where)
        commands = metadata.get("pre_commands") or []
        label = row.get(self.label_key)
        return Task(
            task_id=str(metadata.get("instance_id") or f"{self.path.stem}-{number + 1}"),
            problem_statement=str(statement),
            image=_field(metadata, "image", str, where),
            workdir=_field(metadata, "workdir", str, where),
            pre_commands=(commands,) if isinstance(commands, str) else tuple(map(str, commands)),
            grader=GraderSpec(eval_cmd=_field(metadata, "eval_cmd", str, where), files=metadata.get("files") or {}),
            label=None if label is None else str(label),
            metadata=metadata,
        )


def _field(row: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = row.get(name)
    if not isinstance(value, kind) or not value:
        got = "is missing" if value is None else f"is {value!r:.60}"
        raise ConfigError(f"{where}: `{name}` {got}; a non-empty {kind.__name__} is needed")
    return value
