"""From Hydra's composed config to typed objects, strictly; and from a config node to the plug-in that it names.

Beyond `load()` no DictConfig exists: nodes are the dataclasses of their schemas (plain dictionaries for a user's YAML
without a schema).
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rl_agent.config.schema import Config


_PLAIN_FIELDS: Final = frozenset({"seed", "resume", "output", "tuned_for"})
"""Fields of the root that are no groups."""


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name most like `name`, if any is like it at all."""
    found = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return found[0] if found else None


def load(composed: DictConfig) -> Config:
    """The typed config, interpolations resolved. Raises ConfigError for missing values and for keys that no schema knows."""
    unknown = [*_unknown_keys(composed, ""), *_unchosen_groups(composed)]
    if unknown:
        raise ConfigError("\n".join(unknown))
    try:
        OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        OmegaConf.resolve(composed)
        return cast("Config", OmegaConf.to_object(composed))
    except OmegaConfBaseException as error:
        raise ConfigError(f"the configuration does not load: {str(error).splitlines()[0]}") from error


def as_plain(node: Any) -> Any:
    """A node of the loaded config as JSON-safe values."""
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return {f.name: as_plain(getattr(node, f.name)) for f in dataclasses.fields(node)}
    if isinstance(node, dict):
        return {key: as_plain(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [as_plain(value) for value in node]
    return node.value if isinstance(node, Enum) else node


def _unknown_keys(node: DictConfig, path: str) -> Iterator[str]:
    """Keys that were added (`+algo.foo=1`) to nodes whose schema has no such field: OmegaConf would drop them silently."""
    kind = OmegaConf.get_type(node)
    fields = [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else None
    for key in map(str, node):
        where = f"{path}.{key}" if path else key
        if fields is not None and key not in fields:
            like = nearest(key, fields)
            hint = (
                f" Did you mean `{path + '.' if path else ''}{like}`?"
                if like
                else f" Known here: {', '.join(sorted(fields))}."
            )
            yield f"unknown key `{where}`: no schema has it, so it would have no effect.{hint}"
        elif not OmegaConf.is_missing(node, key) and isinstance(child := node[key], DictConfig):
            yield from _unknown_keys(child, where)


def _unchosen_groups(root: DictConfig) -> Iterator[str]:
    """Groups without an option: a deleted one (`~algo`) may still hold values that others put there."""
    for key in map(str, root):
        if key in _PLAIN_FIELDS:
            continue
        node = None if OmegaConf.is_missing(root, key) else root[key]
        chosen = isinstance(node, DictConfig) and (
            dataclasses.is_dataclass(OmegaConf.get_type(node)) or "_target_" in node
        )
        if not chosen:
            yield f"group `{key}` has no option chosen. Remedy: choose one, {key}=<option>; `--help` lists them."


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Where two plain configs differ, as `key: old -> new`."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key in dict.fromkeys([*before, *after]):
            found += differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
        return found
    return [] if before == after else [f"{path}: {before!r} -> {after!r}"]


def parameters(node: Any) -> dict[str, Any]:
    """The fields of a node as constructor arguments (`_target_` left out); nested nodes stay as they are."""
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return {f.name: getattr(node, f.name) for f in dataclasses.fields(node) if f.name != "_target_"}
    return {key: value for key, value in dict(node).items() if key != "_target_"}


def target(node: Any) -> str:
    """The dotted path that a node names. Raises ConfigError when it names none."""
    path = node.get("_target_") if isinstance(node, dict) else getattr(node, "_target_", None)
    if not path:
        raise ConfigError(
            f"a plug-in's configuration needs `_target_` (a dotted path to a class), but has none: {as_plain(node)}"
        )
    return str(path)


def locate(path: str) -> Any:
    """The object at a dotted path `package.module.Name`. Raises ConfigError naming the part that does not exist."""
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ConfigError(f"`{path}` is not a dotted path to a class")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"`{path}` cannot be imported: {error}. Is its package installed?") from error
    if not hasattr(module, name):
        like = nearest(name, [n for n in dir(module) if not n.startswith("_")])
        raise ConfigError(f"module `{module_name}` has no `{name}`" + (f"; did you mean `{like}`?" if like else ""))
    return getattr(module, name)


def build(node: Any, contract: type | None = None) -> Any:
    """The plug-in that `node._target_` names, built from the node's other fields.

    With `contract` (a Protocol), a class without one of its methods is refused before it is built. Raises ConfigError.
    """
    path = target(node)
    plug_in = locate(path)
    if contract is not None:
        missing = sorted(m for m in contract_members(contract) if not hasattr(plug_in, m))
        if missing:
            raise ConfigError(f"`{path}` is no {contract.__name__}: it lacks {', '.join(missing)}")
    try:
        return plug_in(**parameters(node))
    except TypeError as error:
        raise ConfigError(f"`{path}` does not take the configured fields: {error}") from error


def contract_members(contract: type) -> list[str]:
    """Public methods and properties that a Protocol asks for (annotated attributes, set on instances, are not seen)."""
    return [name for name, value in vars(contract).copy().items() if not name.startswith("_") and value is not None]
