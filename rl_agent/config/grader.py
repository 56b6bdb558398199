"""Schema of `grader/`: how submitted work is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Rung(StrEnum):
    """A way to apply a patch that does not apply exactly."""

    three_way = "3way"
    """git's three-way merge."""
    fuzz = "fuzz"
    """`patch`, which guesses the place."""


@dataclass(slots=True, kw_only=True)
class GraderConfig:
    """A fresh sandbox with the patch applied; each task brings its specification."""

    _target_: str = "rl_agent.graders.auto.Auto"
    timeout_s: float = 600.0
    """Of the tests: longer is status `timeout`, reward 0."""
    setup_timeout_s: float = 600.0
    """Of each part of preparing the clean copy: the repository, all of the task's pre_commands together, the patch."""
    retries: int = 1
    """How often a lost sandbox is replaced before the verdict is `infra_error`."""
    max_patch_bytes: int = 1 << 20
    max_files: int = 200
    """A patch beyond these limits is `apply_failed`."""
    max_log_bytes: int = 20_000
    protected_paths: list[str] = field(default_factory=list)
    """Patterns (as of fnmatch, on the path in the repository) besides those that the task itself protects: what a patch does to
    them is dropped and logged."""
    strict: bool = True
    """False: nothing is dropped, patches may apply with fuzz, assets belong to the agent, and exit codes and in-sandbox parsers
    are believed, as common recipes do it. For comparison only."""
    apply_fallbacks: list[Rung] = field(default_factory=list)
    """Tried in turn, each from a pristine tree, where a patch does not apply exactly; the verdict records which one did."""
    penalty: float = 0.0
    """Taken from the reward where there is a signal of an attempt to fool the tests."""
    plugin_autoload: bool = True
    """Named tests: let pytest load installed plug-ins. A patch cannot install any."""
    skipped_pass_to_pass: bool = False
    """Named tests: a test that passed before the fix may be skipped after it."""
    parser_timeout_s: float = 60.0
    """Of a data set's log parser."""


@dataclass(slots=True, kw_only=True)
class EvalCmdConfig(GraderConfig):
    """The task's own command: exit code 0 = solved."""

    _target_: str = "rl_agent.graders.eval_cmd.EvalCmd"


@dataclass(slots=True, kw_only=True)
class F2pConfig(GraderConfig):
    """Named tests of pytest."""

    _target_: str = "rl_agent.graders.f2p.F2p"


@dataclass(slots=True, kw_only=True)
class SweProConfig(GraderConfig):
    """SWE-bench Pro: a run script and a parser."""

    _target_: str = "rl_agent.graders.swepro.SwePro"


@dataclass(slots=True, kw_only=True)
class SweBenchConfig(GraderConfig):
    """The `swebench` package."""

    _target_: str = "rl_agent.graders.swebench.SweBench"


def grading_s(setup_timeout_s: float, timeout_s: float) -> float:
    """How long a grading's sandbox may be needed: to make the repository, to run the task's own commands, to apply, and to test."""
    return 3 * setup_timeout_s + timeout_s + SPARE_S


SPARE_S: Final = 60.0
"""For copying and reading."""
SCHEMAS: Final = {
    "auto": GraderConfig,
    "eval_cmd": EvalCmdConfig,
    "f2p": F2pConfig,
    "swepro": SweProConfig,
    "swebench": SweBenchConfig,
}
