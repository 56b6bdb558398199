"""Names in a configuration: the nearest valid name, and the object at a dotted path."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name most similar to `name`, or None if no name is similar."""
    found = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return found[0] if found else None


def did_you_mean(name: str, valid: Iterable[str], prefix: str = "") -> str:
    """Return ` Did you mean ...?` for an invalid name, or an empty string if no valid name is similar."""
    like = nearest(name, valid)
    return f" Did you mean `{prefix}{like}`?" if like else ""


def locate(path: str) -> Any:
    """Return the object at a dotted path `package.module.Name`. Raises ConfigError that names the missing part."""
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ConfigError(f"`{path}`: not a dotted path. Write `package.module.Name`.")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"`{path}` cannot be imported: {error}. Install its package.") from error
    if not hasattr(module, name):
        hint = did_you_mean(name, [n for n in dir(module) if not n.startswith("_")])
        raise ConfigError(f"module `{module_name}` has no `{name}`.{hint}")
    return getattr(module, name)
