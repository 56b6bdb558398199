"""Options of every config group, with the hooks by which Hydra finds and types them.

An option is one of these:

- a YAML file in `conf/<group>/`, in a package on `hydra.searchpath`, or below `--config-dir`. `_target_` names its
  config dataclass, or its `defaults` list names the option that it changes;
- a dataclass in `DECLARED`, for options whose values are all defaults;
- a module of a package in `SCANNED`: one formula per file, so a new file is a new option.

The dataclass gives the fields, their types and their defaults. It is imported when its option is chosen, not before.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING, Final, cast

from hydra._internal.core_plugins import file_config_source, importlib_resources_config_source
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from typing_extensions import override

from rl_agent.config.gateway import GatewayRoot
from rl_agent.config.names import did_you_mean, locate
from rl_agent.config.plug_in import PlugInConfig, TargetConfig
from rl_agent.config.schema import Config
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hydra.core.config_search_path import ConfigSearchPath

DECLARED: Final[Mapping[str, Mapping[str, str]]] = {
    "job": {
        "train": "rl_agent.jobs.configs.TrainConfig",
        "rollout": "rl_agent.jobs.configs.RolloutJobConfig",
        "evaluate": "rl_agent.jobs.configs.EvaluateConfig",
        "validate": "rl_agent.jobs.configs.ValidateConfig",
        "plan": "rl_agent.jobs.configs.PlanConfig",
    },
    "data": {
        "jsonl": "rl_agent.tasks.rows.RowsConfig",
        "parquet": "rl_agent.tasks.rows.RowsConfig",
    },
    "adapter": {"auto": "rl_agent.config.adapter.AdapterConfig"},
    "grader": {
        "auto": "rl_agent.graders.auto.AutoConfig",
        "eval_cmd": "rl_agent.graders.eval_cmd.EvalCmdConfig",
        "f2p": "rl_agent.graders.f2p.F2pConfig",
        "swepro": "rl_agent.graders.swepro.SweProConfig",
        "swebench": "rl_agent.graders.swebench.SweBenchConfig",
    },
    "model": {
        "tiny": "rl_agent.embedded.tiny.TinyPolicyConfig",
        "smollm2_135m": "rl_agent.trainer.smollm2.SmolLm2Config",
    },
    "rollout": {"default": "rl_agent.config.rollout.RolloutConfig"},
    "weights": {
        "disk": "rl_agent.weights.disk.DiskConfig",
        "gloo": "rl_agent.weights.stream.GlooConfig",
        "nccl": "rl_agent.weights.stream.NcclConfig",
        "ipc": "rl_agent.weights.ipc.IpcConfig",
    },
    "cluster": {"local": "rl_agent.config.cluster.ClusterConfig"},
    "tracking": {"wandb_offline": "rl_agent.config.tracking.TrackingConfig"},
}
"""Group -> option -> dotted path of its dataclass."""

SCANNED: Final[Mapping[str, str]] = {
    f"algo/{part}": f"rl_agent.algo.{part}"
    for part in ("advantage", "loss", "correction", "kl", "aggregation", "shaping")
}
"""Group -> package whose modules are its options."""

RENAMED: Final[Mapping[str, str]] = {
    "algo=reinforce_pp": "reinforce_plus_plus",
    "algo/correction=tis": "truncated",
    "algo/correction=tis_current": "truncated_current",
    "algo/correction=tis_sequence": "truncated_sequence",
    "algo/kl=in_loss": "penalty",
    "algo/kl=in_reward": "penalty_in_reward",
    "algo/loss=dppo_tv": "dppo",
    "algo/shaping=none": "rewards",
    **{f"algo/shaping={name}": f"rewards_{name}" for name in ("overlong", "dapo", "length", "format", "tool_error")},
    "algo/shaping=zero_variance": "rewards_zero_variance",
}
"""Option of an older version -> its current name."""

TARGET: Final = "_target_"
"""Key of the config class, which is not an option of a plug-in."""
_SCHEME: Final = "options"


def register() -> None:
    """Make Hydra find and type the options. Repeated calls are allowed."""
    store = ConfigStore.instance()
    store.store(name="root", node=Config)
    store.store(name="gateway_root", node=GatewayRoot)
    Plugins.instance().register(_DeclaredOptions)
    Plugins.instance().register(_Options)
    # Hydra has no public hook for files, so the two classes that read them are replaced by classes that type the
    # values.
    SourcesRegistry.instance().types |= {
        source.scheme(): source for source in (FileConfigSource, ImportlibResourcesConfigSource)
    }


def option_class(group: str, name: str) -> type | None:
    """Return the dataclass of an option that has no file, or None if there is no such option."""
    if (path := DECLARED.get(group, {}).get(name)) is not None:
        found: type = locate(path)
        return found
    if group not in SCANNED or name not in _modules(SCANNED[group]):
        return None
    module = importlib.import_module(f"{SCANNED[group]}.{name}")
    own = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, PlugInConfig) and value.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise ConfigError(f"{module.__name__}: expected one config dataclass, found {len(own)}. Keep one per module.")
    return own[0]


def _modules(package: str) -> list[str]:
    return [module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__)]


def _names(group: str) -> list[str]:
    return sorted([*DECLARED.get(group, ()), *(_modules(SCANNED[group]) if group in SCANNED else ())])


def _typed(result: ConfigResult) -> ConfigResult:
    """Merge a file's values over the dataclass in its `_target_`. Raises ConfigError for unknown keys."""
    values = result.config
    if not isinstance(values, DictConfig) or OmegaConf.is_missing(values, TARGET) or TARGET not in values:
        return result
    path = str(values[TARGET])
    kind = locate(path)
    if not (inspect.isclass(kind) and issubclass(kind, TargetConfig)) or kind._target_ == MISSING:
        raise ConfigError(
            f"_target_={path}: not a plug-in config. Set it to a dataclass that subclasses its group's base config."
        )
    defaults = values.pop("defaults", None)
    fields = [field.name for field in dataclasses.fields(kind)]
    for key in map(str, values):
        if key not in fields:
            keys = ", ".join(field for field in fields if field != TARGET)
            raise ConfigError(f"unknown key `{key}` of {path}.{did_you_mean(key, fields)} Keys: {keys}.")
    try:
        typed = cast("DictConfig", OmegaConf.merge(OmegaConf.structured(kind), values))
    except OmegaConfBaseException as error:
        raise ConfigError(f"{result.path}: {str(error).splitlines()[0]}") from error
    if defaults is not None:
        with open_dict(typed):
            typed["defaults"] = defaults
    result.config = typed
    return result


class FileConfigSource(file_config_source.FileConfigSource):
    """YAML files of a folder.

    The class needs Hydra's name: the processes of a sweep reject a class with another name.
    """

    @override
    def load_config(self, config_path: str) -> ConfigResult:
        return _typed(super().load_config(config_path))


class ImportlibResourcesConfigSource(importlib_resources_config_source.ImportlibResourcesConfigSource):
    """YAML files of an installed package."""

    @override
    def load_config(self, config_path: str) -> ConfigResult:
        return _typed(super().load_config(config_path))


class _DeclaredOptions(ConfigSource):
    """Options that are dataclasses without a file."""

    @staticmethod
    @override
    def scheme() -> str:
        return _SCHEME

    @override
    def load_config(self, config_path: str) -> ConfigResult:
        group, _, name = config_path.removesuffix(".yaml").rpartition("/")
        kind = option_class(group, name)
        if kind is None:
            raise ConfigLoadError(f"no such option: {config_path}")
        return ConfigResult(
            provider=self.provider,
            path=f"{_SCHEME}://{self.path}",
            config=OmegaConf.structured(kind),
            header={"package": None},
        )

    @override
    def available(self) -> bool:
        return True

    @override
    def is_group(self, config_path: str) -> bool:
        path = config_path.rstrip("/")
        return any(group == path or group.startswith(f"{path}/") for group in (*DECLARED, *SCANNED)) or not path

    @override
    def is_config(self, config_path: str) -> bool:
        group, _, name = config_path.removesuffix(".yaml").rpartition("/")
        return name in _names(group)

    @override
    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        path = config_path.rstrip("/")
        below = {
            group[len(path) :].strip("/").split("/")[0]
            for group in (*DECLARED, *SCANNED)
            if group != path and (not path or group.startswith(f"{path}/"))
        }
        groups = sorted(below) if results_filter in (None, ObjectType.GROUP) else []
        return groups + (_names(path) if results_filter in (None, ObjectType.CONFIG) else [])


class _Options(SearchPathPlugin):
    """Plug-in that adds the declared options to Hydra's search path, after all files."""

    @override
    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append(provider="rl_agent", path=f"{_SCHEME}://")
