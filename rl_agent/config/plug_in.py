"""Base class of every plug-in's config, and the problems that a config reports.

A plug-in is a class built from its own config dataclass, which is in the same module and subclasses the base config of
its group (`HarnessConfig`, `LossConfig`, ...). The dataclass is the only declaration of the plug-in's options. An
option file selects it with `_target_: package.module.TheConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.schema import Config


@dataclass(frozen=True, slots=True)
class Problem:
    """A contradiction in a configuration, found before anything starts."""

    where: str
    """Config key."""
    what: str
    """The problem, as a sentence."""
    fix: str
    """The fix, as an imperative."""

    @override
    def __str__(self) -> str:
        return f"{self.where}: {self.what} {self.fix}"


@dataclass(kw_only=True)
class TargetConfig:
    """Options of a class that a configuration chooses. `_target_` of a subclass is its dotted path."""

    _target_: str = MISSING

    @override
    def __init_subclass__(cls, *, base: bool = False) -> None:
        """Set `_target_`, so that a saved configuration contains the class that it configures.

        A `base` class has none.
        """
        cls.__annotations__ = {"_target_": str, **cls.__dict__.get("__annotations__", {})}  # noqa: RUF063
        cls._target_ = MISSING if base else f"{cls.__module__}.{cls.__qualname__}"

    def problems(self, config: Config) -> Iterator[Problem]:
        """Yield contradictions with the rest of the configuration."""
        yield from ()


@dataclass(kw_only=True)
class PlugInConfig(TargetConfig, base=True):
    """Options of a plug-in. The base config of a group sets the return type of `build`."""

    def build(self) -> Any:
        """Return the plug-in that this config describes."""
        raise NotImplementedError


def at_least(least: float, **values: float | None) -> Iterator[Problem]:
    """Yield a problem for each value below `least`.

    A double underscore in a name stands for the dot of the config key.
    """
    for name, value in values.items():
        if value is not None and value < least:
            yield Problem(
                name.replace("__", "."), f"{value:g} is less than {least:g}.", f"Set it to at least {least:g}."
            )


def existing(**paths: str | None) -> Iterator[Problem]:
    """Yield a problem for each path that does not exist. Names as in `at_least`."""
    for name, path in paths.items():
        if path is not None and not Path(path).exists():
            yield Problem(
                name.replace("__", "."), f"file not found: {path}.", "Give the path of an existing file or folder."
            )
