"""Base config of a grader: how submitted work is judged."""

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
"""For copying and reading."""


class Rung(StrEnum):
    """A way to apply a patch that does not apply exactly."""

    three_way = "3way"
    """git's three-way merge."""
    fuzz = "fuzz"
    """`patch`, which guesses the place."""


class WithoutControl(StrEnum):
    """Treatment of a task without a test that can be made wrong."""

    allow = "allow"
    """The original tests decide alone. Such rollouts are counted in `grader/without_control`."""
    refuse = "refuse"
    """The task counts as broken."""


@dataclass(kw_only=True)
class GraderConfig(PlugInConfig, base=True):
    """Options of every grader: it boots a fresh sandbox, applies the patch, and runs what the task specifies."""

    timeout_s: float = 600.0
    """Time limit of each test run. If the original tests exceed it, the status is `timeout` with reward 0."""
    setup_timeout_s: float = 600.0
    """Time limit of each set-up stage: the repository, all of the task's pre_commands together, the patch."""
    retries: int = 1
    """Number of replacements for a lost sandbox before the verdict is `infra_error`."""
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
    """Named tests: let pytest load installed plug-ins. A patch cannot install any."""
    skipped_pass_to_pass: bool = False
    """Named tests: a test that passed before the fix may be skipped after it."""
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
        """Return how long one grading may need its sandbox: set up the repository, run the task's commands, apply, test."""
        return 3 * self.setup_timeout_s + self.timeout_s + SPARE_S
