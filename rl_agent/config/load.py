"""From Hydra's composed config to typed objects, strictly; and from a config node to the plug-in that it names.

Beyond `load()` no DictConfig exists: nodes are the dataclasses of their schemas (plain dictionaries for a user's YAML
without a schema).
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rl_agent.config.schema import Config


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name most like `name`, if any is like it at all."""
    found = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return found[0] if found else None


def load(composed: DictConfig) -> Config:
    """The typed config, interpolations resolved. Raises ConfigError for missing values and for keys that no schema knows."""
    try:
        before = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        config = OmegaConf.to_object(composed)
    except OmegaConfBaseException as error:
        raise ConfigError(f"the configuration does not load: {str(error).splitlines()[0]}") from error
    after = as_plain(config)
    unknown = list(_unknown_keys(cast("Mapping[str, Any]", before), after, ""))
    if unknown:
        raise ConfigError("\n".join(unknown))
    return cast("Config", config)


def as_plain(node: Any) -> Any:
    """A node of the loaded config as JSON-safe values."""
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return {f.name: as_plain(getattr(node, f.name)) for f in dataclasses.fields(node)}
    if isinstance(node, dict):
        return {key: as_plain(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [as_plain(value) for value in node]
    return node.value if isinstance(node, Enum) else node


def _unknown_keys(before: Any, after: Any, path: str) -> Iterator[str]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    for key in before:
        where = f"{path}.{key}" if path else str(key)
        if key not in after:
            like = nearest(str(key), after)
            hint = (
                f" Did you mean `{path + '.' if path else ''}{like}`?"
                if like
                else f" Known here: {', '.join(sorted(after))}."
            )
            yield f"unknown key `{where}`: no schema has it, so it would have no effect.{hint}"
        else:
            yield from _unknown_keys(before[key], after[key], where)


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
    return [
        name
        for name in vars(contract)
        if not name.startswith("_") and name not in getattr(contract, "__annotations__", {})
    ]
