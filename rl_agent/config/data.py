"""Schema of `data/`: where tasks come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from omegaconf import MISSING


@dataclass(slots=True, kw_only=True)
class ToyDataConfig:
    """Generated one-file repositories with one bug each."""

    _target_: str = "rl_agent.tasks.toy.ToyTasks"
    kinds: list[str] = field(default_factory=lambda: ["sub", "add", "max", "ge", "lt", "even", "last", "up"])
    """Kinds of bug, one task of each in turn, so that every step sees every kind equally often."""
    image: str = "host"
    """Any image with python3 will do: the hidden tests need its standard library only."""


@dataclass(slots=True, kw_only=True)
class JsonlDataConfig:
    """Rows of a JSON-lines file."""

    _target_: str = "rl_agent.tasks.rows.JsonlTasks"
    path: str = MISSING
    prompt_key: str = "prompt"
    label_key: str = "label"
    metadata_key: str = "metadata"


SCHEMAS: Final = {"toy": ToyDataConfig, "jsonl": JsonlDataConfig}
