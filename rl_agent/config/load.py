"""Conversion of Hydra's composed config to typed objects. No DictConfig leaves `load`."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, Any, cast, get_type_hints

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rl_agent.config.names import did_you_mean
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.schema import Config


def load(composed: DictConfig) -> Config:
    """Return the typed config with interpolations resolved. Raises ConfigError for missing values and unknown keys."""
    faults = [*_unknown_keys(composed, ""), *_unchosen_groups(composed, "")]
    if faults:
        raise ConfigError("\n".join(faults))
    try:
        OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        OmegaConf.resolve(composed)
        return cast("Config", OmegaConf.to_object(composed))
    except OmegaConfBaseException as error:
        raise ConfigError(f"invalid configuration: {str(error).splitlines()[0]}") from error


def as_plain(node: Any) -> Any:
    """Return a node of the loaded config as JSON-safe values."""
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return {f.name: as_plain(getattr(node, f.name)) for f in dataclasses.fields(node)}
    if isinstance(node, dict):
        return {key: as_plain(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [as_plain(value) for value in node]
    return node.value if isinstance(node, Enum) else node


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the differences of two plain configs, as `key: old -> new`."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key in dict.fromkeys([*before, *after]):
            found += differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
        return found
    return [] if before == after else [f"{path}: {before!r} -> {after!r}"]


def _unknown_keys(node: DictConfig, path: str) -> Iterator[str]:
    """Yield keys of `+key=value` that the node's dataclass does not have. OmegaConf would drop them silently."""
    kind = OmegaConf.get_type(node)
    fields = [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else None
    for key in map(str, node):
        where = f"{path}.{key}" if path else key
        if fields is not None and key not in fields:
            hint, keys = did_you_mean(key, fields, f"{path}." if path else ""), f" Keys: {', '.join(sorted(fields))}."
            yield f"unknown key `{where}`: it would have no effect.{hint or keys}"
        elif not OmegaConf.is_missing(node, key) and isinstance(child := node[key], DictConfig):
            yield from _unknown_keys(child, where)


def _unchosen_groups(node: DictConfig, path: str) -> Iterator[str]:
    """Yield groups without an option. A deleted group (`~algo`) may still hold values that an experiment set."""
    kind = OmegaConf.get_type(node)
    for name, hint in get_type_hints(kind).items():
        if not dataclasses.is_dataclass(hint):
            continue
        where = f"{path}/{name}" if path else name
        if OmegaConf.is_missing(node, name) or _has_no_option(node[name]):
            yield f"group `{where}` has no option chosen. Choose one with {where}=<option>; `--help` lists them."
        else:
            yield from _unchosen_groups(node[name], where)


def _has_no_option(node: DictConfig) -> bool:
    """Return whether the node is of a base class, which names no plug-in, or all groups inside it are missing."""
    kind = OmegaConf.get_type(node)
    if getattr(kind, "_target_", None) == MISSING:
        return True
    inner = [name for name, hint in get_type_hints(kind).items() if dataclasses.is_dataclass(hint)]
    return bool(inner) and all(OmegaConf.is_missing(node, name) for name in inner)
