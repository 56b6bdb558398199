"""What all graders share: screening, a fresh sandbox, the clean copy with the patch, retries, and what the verdict records.

How tests are run and what counts as passed is a `Judge`'s business, one for each kind of specification.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from rl_agent.config.sandbox import Network
from rl_agent.errors import GraderError, SandboxError, SetupError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.screen import PatchProblem, Screened, in_the_way, protection, screen
from rl_agent.graders.signals import Signal, find_signals
from rl_agent.workspace.capture import why_not_captured
from rl_agent.workspace.diff import sections, touched_paths
from rl_agent.workspace.workspace import booted, make_repository, printed, require_made

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.config.grader import GraderConfig
    from rl_agent.sandboxes.base import Sandbox, SandboxProvider
    from rl_agent.tasks.task import Task
    from rl_agent.workspace.workspace import Files

APPLY_FAILED: Final = 91
ASSETS_FAILED: Final = 93
TOOLS: Final = "/opt/rl_agent_grading"
"""A folder of root's in the grading sandbox, which the tests may read."""
CACHES_OFF: Final = {"PYTHONDONTWRITEBYTECODE": "1"}

# Strict: no fuzz, no three-way merge, no rejects. What the grader brings comes after it and replaces whatever stands there.
APPLY: Final = f"""\
mkdir -p {TOOLS} && chmod 755 {TOOLS}
[ ! -d "$P/tools" ] || cp -r "$P/tools/." {TOOLS}/
if [ -s "$P/patch" ]; then
  git --git-dir=.git --work-tree=. apply --whitespace=nowarn "$P/patch" || exit {APPLY_FAILED}
fi
own
[ ! -s "$P/test_patch" ] || git --git-dir=.git --work-tree=. apply --whitespace=nowarn "$P/test_patch" || exit {ASSETS_FAILED}
[ ! -d "$P/hidden" ] || cp -r --remove-destination "$P/hidden/." . || exit {ASSETS_FAILED}
"""
# Each rung starts from the pristine tree, so that one that half succeeds leaves nothing to the next. $RUNGS names them.
APPLY_BY_RUNGS: Final = f"""\
mkdir -p {TOOLS} && chmod 755 {TOOLS}
[ ! -d "$P/tools" ] || cp -r "$P/tools/." {TOOLS}/
pristine() {{ git --git-dir=.git --work-tree=. reset -q --hard && git --git-dir=.git --work-tree=. clean -fdq; }}
git --git-dir=.git --work-tree=. add -A && git --git-dir=.git --work-tree=. commit -q --allow-empty -m pristine
applied=
[ -s "$P/patch" ] || RUNGS= applied=nothing
for rung in $RUNGS; do
  case $rung in
    strict) set -- git --git-dir=.git --work-tree=. apply --whitespace=nowarn "$P/patch" ;;
    3way) set -- git --git-dir=.git --work-tree=. apply --3way --whitespace=nowarn "$P/patch" ;;
    fuzz) set -- patch -p1 --batch --no-backup-if-mismatch -i "$P/patch" ;;
  esac
  if "$@"; then applied=$rung; break; fi
  pristine
done
[ -n "$applied" ] || exit {APPLY_FAILED}
echo "applied $applied"
chown -R agent: .
[ ! -s "$P/test_patch" ] || git --git-dir=.git --work-tree=. apply --whitespace=nowarn "$P/test_patch" || exit {ASSETS_FAILED}
[ ! -d "$P/hidden" ] || cp -r --remove-destination "$P/hidden/." . || exit {ASSETS_FAILED}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    """What a judge brings into the grading sandbox."""

    hidden: Mapping[str, str | bytes] = field(default_factory=dict)
    """Path relative to the work tree -> content, written after the patch."""
    test_patch: bytes = b""
    tools: Mapping[str, str | bytes] = field(default_factory=dict)
    """Path below TOOLS -> content: readable by the tests, not writable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A grading sandbox with the patch applied."""

    sandbox: Sandbox
    task: Task
    options: GraderConfig
    touched: tuple[str, ...] = ()
    """Paths that the patch changes."""


class Judge(Protocol):
    """Judges by one kind of specification."""

    def test_files(self, spec: Any) -> Sequence[str]:
        """Paths (or patterns) of the tests that the specification names: what a patch does to them does not count."""

    def assets(self, spec: Any, options: GraderConfig) -> Assets:
        """What is needed in the grading sandbox."""

    async def run(self, trial: Trial, spec: Any) -> Verdict:
        """Run the tests. Raises SandboxError for a lost sandbox, SetupError for a fault of the task."""


class PatchGrader:
    """See `Grader`. A subclass names its judges."""

    judges: ClassVar[Mapping[type, Judge]] = {}
    """Kind of specification -> its judge."""

    def __init__(self, config: GraderConfig) -> None:
        self._config = config

    def require_usable(self, task: Task) -> None:
        """Raise ConfigError if tasks of this kind cannot be judged here: an optional package is missing."""
        with contextlib.suppress(SetupError):  # a fault of this one task
            self._judge_of(task).assets(task.grader, self._config)

    async def grade(self, task: Task, patch: bytes, provider: SandboxProvider, *, even_empty: bool = False) -> Verdict:
        """See `Grader.grade`."""
        judge = self._judge_of(task)
        if not patch and not even_empty:
            return Verdict(status=VerdictStatus.EMPTY_DIFF, reward=0.0)
        screened = await asyncio.to_thread(self._screen, task, judge, patch)  # which may be megabytes
        early = _early(screened, even_empty=even_empty)
        verdict = early or await self._retry(task, judge, screened.patch, provider)
        return await asyncio.to_thread(self._recorded, verdict, screened)

    def _judge_of(self, task: Task) -> Judge:
        judge = self.judges.get(type(task.grader))
        if judge is None:
            known = ", ".join(sorted(kind.__name__ for kind in self.judges))
            raise GraderError(
                f"task {task.task_id} is judged by {type(task.grader).__name__}, but this grader knows {known} only. "
                "Remedy: grader=auto"
            )
        return judge

    def _screen(self, task: Task, judge: Judge, patch: bytes) -> Screened:
        options = self._config
        if reason := why_not_captured(patch):
            return _inapplicable(reason)
        hidden = [pattern for path in task.hidden_paths for pattern in (path, f"{path}/*")]
        brought = _brought(judge, task, options)
        guard = protection(judge.test_files(task.grader), more=(*options.protected_paths, *hidden), brought=brought)
        if not options.strict:
            found = list(sections(patch))
            blocking = [f"{section.name} {reason}" for section in found if (reason := in_the_way(section, guard))]
            return _inapplicable("; ".join(blocking)) if blocking else Screened(patch=patch, sections=found)
        return screen(patch, guard, max_bytes=options.max_patch_bytes, max_files=options.max_files)

    async def _retry(self, task: Task, judge: Judge, patch: bytes, provider: SandboxProvider) -> Verdict:
        started, lost = time.monotonic(), ""
        metadata: dict[str, Any] = {}
        for _ in range(1 + self._config.retries):
            try:
                verdict = await self._judge(task, judge, patch, provider)
            except (SandboxError, GraderError) as error:
                lost = str(error)
            except SetupError as error:  # the task's fault, so another sandbox would not help
                lost = str(error)
                metadata = {"setup_failed": True}
                break
            else:
                return replace(verdict, seconds=time.monotonic() - started)
        seconds = time.monotonic() - started
        return Verdict(status=VerdictStatus.INFRA_ERROR, reward=None, log=lost, seconds=seconds, metadata=metadata)

    async def _judge(self, task: Task, judge: Judge, patch: bytes, provider: SandboxProvider) -> Verdict:
        options = self._config
        lifetime = options.sandbox_lifetime_s
        labels = {"task": task.task_id, "role": "grading"}
        async with booted(provider, task, lifetime_s=lifetime, network=Network.none, labels=labels) as sandbox:
            made = await make_repository(
                sandbox,
                task,
                then=_apply_script(options),
                private=_private(judge.assets(task.grader, options), patch),
                timeout_s=options.setup_timeout_s,
            )
            if made.exit_code == APPLY_FAILED:
                return Verdict(status=VerdictStatus.APPLY_FAILED, reward=0.0, log=printed(made, options.max_log_bytes))
            require_made(task, made, options.setup_timeout_s)
            touched = tuple(path.decode(errors="replace") for path in touched_paths(patch))
            trial = Trial(sandbox=sandbox, task=task, options=options, touched=touched)
            verdict = await judge.run(trial, task.grader)
            _, found, rung = made.stdout.rpartition(b"applied ")
            metadata = {"applied": rung.strip().decode()} if found else {}
            return replace(verdict, metadata={**verdict.metadata, **metadata})

    def _recorded(self, verdict: Verdict, screened: Screened) -> Verdict:
        """The verdict with what was dropped, the signals, and their penalty."""
        found = find_signals(screened.sections)
        for name, where in verdict.metadata.get("signals", {}).items():
            found.setdefault(name, []).extend(where)
        if screened.tampering:
            found[Signal.PROTECTED_PATH] = list(screened.dropped)
        metadata = {**verdict.metadata}
        metadata.pop("signals", None)
        if screened.dropped:
            metadata["dropped_paths"] = dict(screened.dropped)
        if found:
            metadata["signals"] = {str(name): sorted(set(where)) for name, where in found.items()}
        reward = verdict.reward
        if found and reward is not None:
            reward -= self._config.penalty
        return replace(verdict, reward=reward, metadata=metadata)


def _inapplicable(reason: str) -> Screened:
    problem = PatchProblem(status=VerdictStatus.APPLY_FAILED, reason=reason)
    return Screened(patch=b"", sections=(), problem=problem)


def _brought(judge: Judge, task: Task, options: GraderConfig) -> list[str]:
    """The files that the judge brings; none yet where the task is at fault, which is said when they are wanted."""
    with contextlib.suppress(SetupError):
        assets = judge.assets(task.grader, options)
        return [*assets.hidden, *(path.decode(errors="replace") for path in touched_paths(assets.test_patch))]
    return []


def _early(screened: Screened, *, even_empty: bool) -> Verdict | None:
    """The verdict of a patch that needs no sandbox."""
    if screened.problem is not None:
        return Verdict(status=screened.problem.status, reward=0.0, log=screened.problem.reason)
    if screened.patch or even_empty:
        return None
    listed = "; ".join(f"{path}: {reason}" for path, reason in screened.dropped.items())
    status = VerdictStatus.TAMPERED if screened.tampering else VerdictStatus.EMPTY_DIFF
    return Verdict(status=status, reward=0.0, log=f"nothing of the patch reaches the tests: {listed}")


def _apply_script(options: GraderConfig) -> str:
    if options.strict and not options.apply_fallbacks:
        return APPLY
    rungs = (
        ("strict", *(rung.value for rung in options.apply_fallbacks)) if options.strict else ("3way", "strict", "fuzz")
    )
    return f'RUNGS="{" ".join(rungs)}"\n' + APPLY_BY_RUNGS


def _private(assets: Assets, patch: bytes) -> Files:
    return {
        "patch": patch,
        "touched": _with_parents(touched_paths(patch)),
        "test_patch": assets.test_patch,
        **{f"hidden/{path}": content for path, content in assets.hidden.items()},
        **{f"tools/{path}": content for path, content in assets.tools.items()},
    }


def _with_parents(paths: Sequence[bytes]) -> bytes:
    """The touched paths and the folders above them, each ended by NUL, as xargs takes them."""
    found: dict[bytes, None] = {}
    for path in paths:
        found[b"./" + path] = None
        for parent in PurePosixPath(path.decode("utf-8", "surrogateescape")).parents:
            found[b"./" + str(parent).encode("utf-8", "surrogateescape")] = None
    return b"".join(path + b"\0" for path in found)
