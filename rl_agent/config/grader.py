"""Base config of a grader, which judges submitted work."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from rl_agent.config.plug_in import PlugInConfig

if TYPE_CHECKING:
    from rl_agent.graders.base import Grader


MIXED_RUNS: Final = 7
"""At most: four for a task with one test, and three that are repeated."""
MAKING_RUNS: Final = 12
"""Runs with the gold patch that make a task's twins at their first use, at most."""
SPARE_S: Final = 60.0
"""Spare time for copying and reading files."""


class Rung(StrEnum):
    """A way to apply a patch that does not apply exactly."""

    three_way = "3way"
    """git's three-way merge."""
    fuzz = "fuzz"
    """`patch`, which guesses the position."""


class WithoutControl(StrEnum):
    """Treatment of a task without a test that can be made wrong."""

    allow = "allow"
    """The original tests decide alone. Such tasks are counted in `data/tasks_without_control`."""
    refuse = "refuse"
    """The task counts as broken."""


@dataclass(kw_only=True)
class GraderConfig(PlugInConfig, base=True):
    """Options of every grader: it boots a fresh sandbox, applies the patch, and runs what the task specifies."""

    timeout_s: float = 600.0
    """Time limit of each test run. If the original tests exceed it, the status is `timeout` with reward 0."""
    setup_timeout_s: float = 600.0
    """Time limit of each setup stage: the repository, all pre_commands together, the patch."""
    retries: int = 1
    """Number of replacements for a lost sandbox before the verdict is `infra_error`."""
    max_patch_bytes: int = 1 << 20
    """Maximum size of a patch. A larger patch is `apply_failed`."""
    max_files: int = 200
    """Maximum number of files in a patch. A larger patch is `apply_failed`."""
    max_log_bytes: int = 20_000
    """Maximum size of the log in a verdict."""
    protected_paths: list[str] = field(default_factory=list)
    """Patterns (fnmatch, on paths in the repository) of protected files, besides those that the task protects. Changes
    to them are dropped and logged."""
    strict: bool = True
    """False: like common recipes, drop nothing, apply patches with fuzz, give assets to the agent, and trust exit codes
    and parsers in the sandbox. For comparison only."""
    apply_fallbacks: list[Rung] = field(default_factory=list)
    """Ways to apply a patch that does not apply exactly, tried in turn on a pristine tree. The verdict records the one
    that worked."""
    penalty: float = 0.0
    """Subtracted from the reward of a submission with status `tampered`."""
    mixed_runs: bool = True
    """Run a submission that passes against tests with wrong expectations too, which it must fail (docs/graders.md)."""
    without_control: WithoutControl = WithoutControl.allow
    """Treatment of a task without a test that can be made wrong."""
    test_limit_s: float = 60.0
    """Time limit of each pytest test in a mixed run, where a wrong test may wait forever. 0: none."""
    twins_dir: str = ""
    """Folder of the tests with wrong expectations, which are made once per task. Empty: `~/.cache/rl_agent/twins`."""
    plugin_autoload: bool = True
    """For named tests: let pytest load installed plug-ins. A patch cannot install any."""
    skipped_pass_to_pass: bool = False
    """For named tests: accept that a test that passed before the fix is skipped after it."""
    parser_timeout_s: float = 60.0
    """Time limit of a data set's log parser."""

    @override
    def build(self) -> Grader:
        """Return the grader."""
        raise NotImplementedError

    @property
    def duration_s(self) -> float:
        """Return how long the test runs of one grading may take, including those that make the twins of a task."""
        runs = 1 + (MIXED_RUNS + MAKING_RUNS if self.mixed_runs and self.strict else 0)
        return runs * self.timeout_s

    @property
    def sandbox_lifetime_s(self) -> float:
        """Maximum time that one grading needs its sandbox: repository, pre_commands, patch, tests."""
        return 3 * self.setup_timeout_s + self.timeout_s + SPARE_S
