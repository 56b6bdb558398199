"""Clear errors for what Hydra cannot compose: which name is wrong, and the nearest valid one.

Hydra's own advice for a misspelt key is "use +key", which would add a key that nothing reads; so the command line is
composed once before Hydra runs, and its complaint is translated.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from rl_agent.config.load import nearest
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

QUOTING: Final = (
    "Values with special characters (`=`, `,`, `#`, `~`, `{`, `}`, blanks) are quoted twice, once for the shell and once for "
    "Hydra: 'harness.prompt=\"Fix it, please: {problem_statement}\"'"
)
_PROFILES: Final = re.compile(r"'(experiment|engine_profile|harness_profile|job_profile)/")
_PROFILE: Final = "The values of an experiment do not fit the other choices. Remedy: another experiment, or experiment=none for values of your own."


def precompose(folder: Path, config_name: str, overrides: Sequence[str]) -> DictConfig:
    """The config that `overrides` compose (the first choice of each sweep). Raises ConfigError, with the nearest valid name."""
    singles = [_first_choice(text) for text in overrides if not text.startswith("hydra")]
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


def _first_choice(text: str) -> str:
    """An override of a sweep, with the first of its choices."""
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise ConfigError(f"`{text}` cannot be read: {str(error).splitlines()[0]}\n{QUOTING}") from error
    if not override.is_sweep_override():
        return text
    first = next(iter(override.sweep_string_iterator()))
    return f"{text.partition('=')[0]}={first}"


def _missing_option(error: MissingConfigException, overrides: Sequence[str]) -> str:
    wanted = error.missing_cfg_file or ""
    group, _, name = wanted.rpartition("/")
    options = sorted(error.options or ())
    if options and group:
        return f"`{group}={name}`: there is no such option.{_suggest(name, options)} Options of {group}: {', '.join(options)}."
    for text in overrides:
        key = text.partition("=")[0].lstrip("+~")
        if key in (wanted, group):
            return f"`{text}`: nothing here is called `{key}`."
    return str(error).splitlines()[0]


def _bad_key(error: ConfigCompositionException, config_name: str) -> str:
    """The key that does not exist, and the nearest one beside where it would be."""
    cause = error.__cause__
    if isinstance(cause, ConfigAttributeError | ConfigKeyError):
        key = str(cause.full_key or cause.key)
        parent, _, name = key.rpartition(".")
        options = [str(k) for k in cause.parent_node] if isinstance(cause.parent_node, DictConfig) else []
        if parent == "" and not options:
            options = list(compose(config_name))
        prefix = f"{parent}." if parent else ""
        return (
            f"`{key}`: there is no such key.{_suggest(name, options, prefix)} Keys here: {', '.join(sorted(options))}."
        )
    parts = [*str(error).splitlines()[:3], *str(cause or "").splitlines()[:1]]
    detail = " ".join(dict.fromkeys(part.strip() for part in parts))
    return f"{detail} {_PROFILE if _PROFILES.search(detail) else ''}".strip()


def _suggest(name: str, options: Sequence[str], prefix: str = "") -> str:
    like = nearest(name, options)
    return f" Did you mean `{prefix}{like}`?" if like else ""
