"""Clear errors for configurations that Hydra cannot compose: the wrong name, and the nearest valid one.

For a misspelled key, Hydra suggests "use +key", which would add a key that nothing reads. So the command line is
composed once before Hydra runs, and Hydra's error is translated.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from rl_agent.config.names import did_you_mean
from rl_agent.config.options import RENAMED, TARGET
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

QUOTING: Final = (
    "Quote values with special characters (`=`, `,`, `#`, `~`, `{`, `}`, blanks) twice, once for the shell and once for "
    "Hydra: 'harness.prompt=\"Fix it, please: {problem_statement}\"'"
)
_SEARCH_PATH: Final = "hydra.searchpath="
_PROFILES: Final = re.compile(r"'(experiment|engine_profile|harness_profile|job_profile)/")
_PROFILE: Final = (
    "The experiment's values do not match the other options. Choose another experiment, or experiment=none."
)


def precompose(folder: Path, config_name: str, overrides: Sequence[str], config_dir: str | None = None) -> DictConfig:
    """Return the config that `overrides` compose, with the first choice of each sweep.

    `config_dir`: a folder of more options (`--config-dir`). Raises ConfigError with the nearest valid name.
    """
    singles = [
        _first_choice(text) for text in overrides if not text.startswith("hydra") or text.startswith(_SEARCH_PATH)
    ]
    if config_dir is not None:
        singles = [_with_folder(singles, config_dir), *(text for text in singles if not text.startswith(_SEARCH_PATH))]
    with initialize_config_dir(config_dir=str(folder), version_base="1.3"):
        try:
            return compose(config_name, overrides=singles)
        except MissingConfigException as error:
            raise ConfigError(_missing_option(error, singles)) from error
        except ConfigCompositionException as error:
            raise ConfigError(_bad_key(error, config_name)) from error
        except ValueError as error:
            raise ConfigError(f"{str(error).splitlines()[0]} (a group has no option `null`)") from error
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(f"{str(error).splitlines()[0]}\n{QUOTING}") from error


def _with_folder(overrides: Sequence[str], folder: str) -> str:
    """Return the search path of the command line with a folder in front."""
    given = [text.removeprefix(_SEARCH_PATH).strip("[]") for text in overrides if text.startswith(_SEARCH_PATH)]
    return f"{_SEARCH_PATH}[{','.join([f'file://{Path(folder).resolve()}', *given])}]"


def _first_choice(text: str) -> str:
    """Return an override with the first choice of its sweep."""
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise ConfigError(f"`{text}`: invalid override: {str(error).splitlines()[0]}\n{QUOTING}") from error
    if not override.is_sweep_override():
        return text
    first = next(iter(override.sweep_string_iterator()))
    return f"{text.partition('=')[0]}={first}"


def _missing_option(error: MissingConfigException, overrides: Sequence[str]) -> str:
    wanted = error.missing_cfg_file or ""
    group, _, name = wanted.rpartition("/")
    options = sorted(error.options or ())
    if (renamed := RENAMED.get(f"{group}={name}")) is not None:
        return f"`{group}={name}`: renamed. Use {group}={renamed}."
    if options and group:
        return (
            f"`{group}={name}`: no such option.{did_you_mean(name, options)} Options of {group}: {', '.join(options)}."
        )
    for text in overrides:
        key = text.partition("=")[0].lstrip("+~")
        if key in (wanted, group):
            return f"`{text}`: no such key or group: `{key}`."
    return str(error).splitlines()[0]


def _bad_key(error: ConfigCompositionException, config_name: str) -> str:
    """Name the unknown key and the nearest valid key beside it."""
    cause = error.__cause__
    if isinstance(cause, ConfigAttributeError | ConfigKeyError):
        key = str(cause.full_key or cause.key)
        parent, _, name = key.rpartition(".")
        options = (
            [str(k) for k in cause.parent_node if k != TARGET] if isinstance(cause.parent_node, DictConfig) else []
        )
        if parent == "" and not options:
            options = list(compose(config_name))
        prefix = f"{parent}." if parent else ""
        return f"`{key}`: no such key.{did_you_mean(name, options, prefix)} Keys here: {', '.join(sorted(options))}."
    parts = [*str(error).splitlines()[:3], *str(cause or "").splitlines()[:1]]
    detail = " ".join(dict.fromkeys(part.strip() for part in parts))
    return f"{detail} {_PROFILE if _PROFILES.search(detail) else ''}".strip()
