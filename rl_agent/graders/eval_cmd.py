"""Judges by the task's own command: a fresh sandbox, the patch, the hidden files, exit code 0.

An exit code alone is easily forged by code that shares a process with its tests; use stronger specifications where the
policy may learn to.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from rl_agent.errors import SandboxError, SetupError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.patch import find_problem, touched_paths
from rl_agent.graders.workspace import make_repository, printed, require_made
from rl_agent.sandboxes.base import Network

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.sandboxes.base import SandboxProvider
    from rl_agent.tasks.task import Task

APPLY_FAILED: Final = 91
SPARE_S: Final = 60.0
"""Lifetime of a sandbox beyond the time that its work may take."""

# Strict: no fuzz, no three-way merge, no rejects. Hidden files come after it and replace whatever stands there.
APPLY: Final = f"""\
git --git-dir=.git --work-tree=. apply --whitespace=nowarn "$P/patch" || exit {APPLY_FAILED}
own
[ ! -d "$P/hidden" ] || cp -r --remove-destination "$P/hidden/." .
"""


class EvalCmd:
    """See `Grader`."""

    def __init__(
        self,
        *,
        timeout_s: float,
        setup_timeout_s: float,
        retries: int,
        max_patch_bytes: int,
        max_files: int,
        max_log_bytes: int,
        protected_paths: Sequence[str],
    ) -> None:
        self._timeout_s = timeout_s
        self._setup_timeout_s = setup_timeout_s
        self._retries = retries
        self._max_patch_bytes = max_patch_bytes
        self._max_files = max_files
        self._max_log_bytes = max_log_bytes
        self._protected_paths = tuple(protected_paths)

    async def grade(self, task: Task, patch: bytes, provider: SandboxProvider) -> Verdict:
        """See `Grader.grade`."""
        if not patch:
            return Verdict(status=VerdictStatus.EMPTY_DIFF, reward=0.0)
        problem = find_problem(
            patch, max_bytes=self._max_patch_bytes, max_files=self._max_files, protected=self._protected_paths
        )
        if problem is not None:
            return Verdict(status=problem.status, reward=0.0, log=problem.reason)
        started, lost = time.monotonic(), ""
        for _ in range(1 + self._retries):
            try:
                verdict = await self._judge(task, patch, provider)
            except SandboxError as error:
                lost = str(error)
            except SetupError as error:  # the task's fault, so another sandbox would not help
                lost = str(error)
                break
            else:
                return replace(verdict, seconds=time.monotonic() - started)
        return Verdict(status=VerdictStatus.INFRA_ERROR, reward=None, log=lost, seconds=time.monotonic() - started)

    async def _judge(self, task: Task, patch: bytes, provider: SandboxProvider) -> Verdict:
        lifetime = self._setup_timeout_s * (2 + len(task.pre_commands)) + self._timeout_s + SPARE_S
        async with provider.boot(
            task.image, lifetime_s=lifetime, network=Network.NONE, labels={"task": task.task_id, "role": "grading"}
        ) as sandbox:
            private: dict[str, str | bytes] = {
                "patch": patch,
                "touched": _with_parents(touched_paths(patch)),
                **{f"hidden/{path}": text for path, text in task.grader.files.items()},
            }
            made = await make_repository(sandbox, task, then=APPLY, private=private, timeout_s=self._setup_timeout_s)
            if made.exit_code == APPLY_FAILED:
                return Verdict(status=VerdictStatus.APPLY_FAILED, reward=0.0, log=printed(made, self._max_log_bytes))
            require_made(task, made, self._setup_timeout_s)
            result = await sandbox.exec(
                task.grader.eval_cmd,
                cwd=task.workdir,
                env={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"},
                timeout=self._timeout_s,
            )
            log = printed(result, self._max_log_bytes)
            if result.timed_out:
                return Verdict(status=VerdictStatus.TIMEOUT, reward=0.0, tests_failed=1, log=log)
            if result.exit_code == 0:
                return Verdict(status=VerdictStatus.SOLVED, reward=1.0, tests_passed=1, log=log)
            return Verdict(
                status=VerdictStatus.FAILED,
                reward=0.0,
                tests_failed=1,
                log=log,
                metadata={"exit_code": result.exit_code},
            )


def _with_parents(paths: Sequence[bytes]) -> bytes:
    """The touched paths and the folders above them, each ended by NUL, as xargs takes them."""
    found: dict[bytes, None] = {}
    for path in paths:
        found[b"./" + path] = None
        for parent in PurePosixPath(path.decode("utf-8", "surrogateescape")).parents:
            found[b"./" + str(parent).encode("utf-8", "surrogateescape")] = None
    return b"".join(path + b"\0" for path in found)
