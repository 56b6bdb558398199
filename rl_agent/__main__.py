"""Entry point: composes, loads and checks the configuration, then runs the chosen job."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from rl_agent.config.check import require_valid
from rl_agent.config.hints import precompose
from rl_agent.config.load import differences, load
from rl_agent.config.options import register
from rl_agent.errors import RlAgentError
from rl_agent.run_folder import CONFIG, RunFolder, held, require_run, unfinished_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

log = logging.getLogger("rl_agent")

_INSTALLED: Final = Path(__file__).parent / "conf"
CONF: Final = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parent.parent / "conf"
CONFIG_NAME: Final = "config"
FAILED: Final = 1
AUTO: Final = "auto"
"""`resume=auto`: continue the newest unfinished run of the same job that no process uses, if there is one."""


def run(composed: DictConfig) -> None:
    """Run one job. A known error is one message and exit code 1. An internal error keeps its traceback, also in the log."""
    folder = RunFolder(Path(HydraConfig.get().runtime.output_dir).resolve())
    try:
        config = load(composed)
        with held(folder.root):
            if config.resume == AUTO:
                config.resume = str(folder.root) if (folder.root / CONFIG).is_file() else None
            require_valid(config)
            _write_config(folder.root / CONFIG, composed)
            config.job.run(config, folder)
    except (RlAgentError, BaseExceptionGroup) as error:
        log.info("stopped by an error", exc_info=error)
        leaves = list(_leaves(error))
        if not all(isinstance(leaf, RlAgentError) for leaf in leaves):
            raise
        _fail(*leaves)
    except KeyboardInterrupt:
        log.warning("interrupted; continue with resume=%s", folder.root)
        sys.exit(130)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the job."""
    register()
    OmegaConf.register_new_resolver("rl_agent.run_dir", _run_dir, replace=True)
    given = get_args_parser().parse_args(arguments)
    if not given.help and not given.hydra_help:
        try:
            config = load(precompose(CONF, CONFIG_NAME, given.overrides, given.config_dir))
            if config.resume not in (None, AUTO):
                require_run(Path(config.resume))
        except RlAgentError as error:
            _fail(error)
    hydra.main(version_base="1.3", config_path=str(CONF), config_name=CONFIG_NAME)(run)()


def _write_config(path: Path, composed: DictConfig) -> None:
    """Write the resolved config. Changes since the recorded run are reported."""
    now = OmegaConf.to_container(composed, resolve=True)
    if path.is_file():
        before = OmegaConf.to_container(OmegaConf.load(path))
        for difference in differences(before, now):
            if not difference.startswith("resume:"):
                log.warning("resumed with another configuration: %s", difference)
    path.write_text(OmegaConf.to_yaml(composed, resolve=True))


def _run_dir(resume: str | None, output: str, job: str, day: str, time: str) -> str:
    """Return the run's folder: a new one, or the resumed one."""
    if resume == AUTO:
        runs = unfinished_runs(Path(output))
        same = (run for run in runs if OmegaConf.select(OmegaConf.load(run / CONFIG), "job._target_") == job)
        resume = str(next(same, ""))
    return resume or f"{output}/{day}/{time}"


def _fail(*errors: BaseException) -> None:
    lines = dict.fromkeys(f"error: {error}" for error in errors)  # rollouts that fail together have the same message
    print("\n".join(lines), file=sys.stderr)  # noqa: T201 (the only place that prints an error)
    sys.exit(FAILED)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


if __name__ == "__main__":
    main()
