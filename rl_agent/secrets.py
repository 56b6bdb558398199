"""The only reader of the process environment: secrets by name, and the environment of child processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def require(name: str, needed_by: str) -> str:
    """Return the secret `name`. Raises ConfigError with `needed_by` if it is not set."""
    value = os.environ.get(name)  # noqa: TID251 (this is the one place)
    if not value:
        raise ConfigError(f"{needed_by} needs the environment variable {name}. Export {name} and start again.")
    return value


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process outside sandboxes: this process's environment with `extra` on top."""
    return {**os.environ, **extra}  # noqa: TID251 (this is the one place)


def is_root() -> bool:
    """Return whether this process runs as root."""
    return os.geteuid() == 0


def set_for_children(name: str, value: str) -> None:
    """Set a variable for libraries in child processes of this process."""
    os.environ[name] = value  # noqa: TID251 (this is the one place)
