"""Schema of `grader/`: how submitted work is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(slots=True, kw_only=True)
class EvalCmdConfig:
    """The task's own command, in a fresh sandbox with the patch applied: exit code 0 = solved."""

    _target_: str = "rl_agent.graders.eval_cmd.EvalCmd"
    timeout_s: float = 600.0
    """Of the command: longer is status `timeout`, reward 0."""
    setup_timeout_s: float = 600.0
    """Of preparing the clean copy."""
    retries: int = 1
    """How often a lost sandbox is replaced before the verdict is `infra_error`."""
    max_patch_bytes: int = 1 << 20
    max_files: int = 200
    """A patch beyond these limits is `apply_failed`."""
    max_log_bytes: int = 20_000
    protected_paths: list[str] = field(default_factory=list)
    """Patterns (as of fnmatch, on the path in the repository) that a patch must not touch: else it is `tampered`."""


SCHEMAS: Final = {"eval_cmd": EvalCmdConfig}
