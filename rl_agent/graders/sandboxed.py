"""One run of a task's tests in a fresh sandbox: a clean copy of the repository, the patch, then the tests."""

from __future__ import annotations

import io
import shlex
import tarfile
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Protocol

from rl_agent.config.sandbox import Network
from rl_agent.errors import SetupError
from rl_agent.sandboxes.base import UnreadableError
from rl_agent.workspace.diff import touched_paths
from rl_agent.workspace.workspace import PRIVATE, PRUNE, booted, make_repository, printed, require_made

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.config.grader import GraderConfig
    from rl_agent.graders.base import Verdict
    from rl_agent.graders.names import Names
    from rl_agent.sandboxes.base import ExecResult, Sandbox, SandboxProvider
    from rl_agent.tasks.task import Task
    from rl_agent.workspace.workspace import Files

APPLY_FAILED: Final = 91
TESTS_FAILED: Final = 93
TOOLS: Final = "/opt/rl_agent_grading"
"""A folder of root's in the grading sandbox, which the tests may read."""
CACHES_OFF: Final = {"PYTHONDONTWRITEBYTECODE": "1"}
TESTS_BYTES: Final = 64 << 20
TAR: Final = f"{PRIVATE}/tests.tar"

# Attributes of the submission (encodings, line ends, `ident`) would change what `git apply` writes, of the tests too. The limits
# of memory (KiB) and of a file's size (blocks of 512 or 1024 bytes) end a patch that expands without end.
BEGIN: Final = f"""\
apply() {{ (
  ulimit -v 4194304
  ulimit -f 1048576
  git -c core.protectNTFS=false -c core.protectHFS=false --git-dir=.git --work-tree=. apply --whitespace=nowarn "$@"
); }}
mkdir -p {TOOLS} && chmod 755 {TOOLS}
[ ! -d "$P/tools" ] || cp -r "$P/tools/." {TOOLS}/
mkdir -p .git/info
[ ! -e .git/info/attributes ] || mv .git/info/attributes "$P/attributes"
printf %s "$SHADOW_ATTRIBUTES" >.git/info/attributes
"""
APPLY_EXACTLY: Final = f"""\
if [ -s "$P/patch" ]; then apply "$P/patch" || exit {APPLY_FAILED}; fi
own
"""
# Each rung starts from the pristine tree, so that one that half succeeds leaves nothing to the next. $RUNGS names them.
APPLY_BY_RUNGS: Final = f"""\
pristine() {{ git --git-dir=.git --work-tree=. reset -q --hard && git --git-dir=.git --work-tree=. clean -fdq; }}
git --git-dir=.git --work-tree=. add -A && git --git-dir=.git --work-tree=. commit -q --allow-empty -m pristine
applied=
[ -s "$P/patch" ] || RUNGS= applied=nothing
for rung in $RUNGS; do
  case $rung in
    strict) set -- apply "$P/patch" ;;
    3way) set -- apply --3way "$P/patch" ;;
    fuzz) set -- patch -p1 --batch --no-backup-if-mismatch -i "$P/patch" ;;
  esac
  if "$@"; then applied=$rung; break; fi
  pristine
done
[ -n "$applied" ] || exit {APPLY_FAILED}
echo "applied $applied"
chown -R agent: .
"""
BRING: Final = f"""\
[ ! -s "$P/test_patch" ] || apply "$P/test_patch" || exit {TESTS_FAILED}
[ ! -d "$P/hidden" ] || cp -r --remove-destination "$P/hidden/." . || exit {TESTS_FAILED}
[ ! -d "$P/absolute" ] || cp -r --remove-destination "$P/absolute/." / || exit {TESTS_FAILED}
rm -f .git/info/attributes
[ ! -e "$P/attributes" ] || mv "$P/attributes" .git/info/attributes
"""
MARK: Final = 'touch "$P/mark"; sleep 0.05\n'
# What was brought is newer than the mark.
COLLECT: Final = f"""\
set -eu
cd "$W"
{{
  find . -type f -cnewer "$P/mark" -not -path './.git/*' -not -path '*/__pycache__/*' -print0
  sh "$P/find"
}} | sort -zu >"$P/list"
tar -P --null -T "$P/list" -cf {TAR}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """What brings the tests into a grading sandbox, after the patch."""

    __test__ = False  # not a test of pytest's

    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Path, relative to the work tree or absolute -> content."""
    patch: bytes = b""
    command: str = ""
    """Shell command, run as the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """What a judge saw of one run."""

    __test__ = False

    outcomes: Mapping[str, str] = field(default_factory=dict)
    """Name of every test that was seen -> outcome in lower case, in order. Empty if the run exceeded its time limit."""
    exit_code: int = 0
    timed_out: bool = False
    log: str = ""
    problem: str = ""
    """Reason why there are no outcomes."""
    verdict: Verdict | None = None
    """Set if something else than the outcomes decides (`grader.strict=false`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A grading sandbox with the patch applied and the tests in place."""

    sandbox: Sandbox
    task: Task
    options: GraderConfig
    is_mixed: bool = False
    """True if some of the tests may be wrong."""


class Judge(Protocol):
    """Judges by one kind of specification."""

    reads_docstrings: bool
    """True if names of tests may come from their docstrings."""

    def names(self, spec: Any) -> Names:
        """Return the names of the tests that must pass; `COMMAND` if an exit code decides."""

    def test_files(self, spec: Any) -> Sequence[str]:
        """Return paths (or patterns) of the tests that the specification names. What a patch does to them does not count."""

    def sources(self, spec: Any) -> Sequence[str]:
        """Return paths (or patterns) of the test files that the repository holds and that may be made wrong."""

    def tests(self, spec: Any) -> Tests:
        """Return what brings the tests."""

    def controls(self, spec: Any) -> Mapping[str, str]:
        """Return path -> text of test files with a wrong expectation that the task itself brings."""

    def tools(self, spec: Any, options: GraderConfig) -> Files:
        """Return files for TOOLS: path -> content."""

    async def run(self, trial: Trial, spec: Any) -> TestRun:
        """Run the tests. Raises SandboxError for a lost sandbox, SetupError for a fault of the task."""

    def verdict(self, spec: Any, run: TestRun, options: GraderConfig) -> Verdict:
        """Return the verdict on a run that ended in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A run, or the reason why the patch does not apply."""

    run: TestRun | None
    log: str = ""
    rung: str = ""
    """Which of the fallbacks applied the patch."""


async def run_tests(
    judge: Judge,
    task: Task,
    patch: bytes,
    provider: SandboxProvider,
    options: GraderConfig,
    *,
    mixed: Mapping[str, bytes] | None = None,
) -> Applied:
    """Run the tests in a fresh sandbox.

    `mixed`: content of all test files, some with wrong expectations. Then nothing else brings the tests, and the history of
    the repository, where the originals may be, is removed first.
    """
    tests = judge.tests(task.grader) if mixed is None else Tests(files=mixed)
    prune = "" if mixed is None else PRUNE
    script = prune + BEGIN + _apply(options) + BRING
    private = {"patch": patch, "touched": _with_parents(touched_paths(patch)), **_private(tests)}
    private |= {f"tools/{path}": content for path, content in judge.tools(task.grader, options).items()}
    labels = {"task": task.task_id, "role": "grading"}
    async with booted(
        provider, task, lifetime_s=options.sandbox_lifetime_s, network=Network.none, labels=labels
    ) as sandbox:
        made = await make_repository(sandbox, task, then=script, private=private, timeout_s=options.setup_timeout_s)
        if made.exit_code == APPLY_FAILED:
            return Applied(run=None, log=printed(made, options.max_log_bytes))
        require_made(task, made, options.setup_timeout_s)
        await _command(sandbox, task, tests.command, options)
        trial = Trial(sandbox=sandbox, task=task, options=options, is_mixed=mixed is not None)
        run = await judge.run(trial, task.grader)
    _, found, rung = made.stdout.rpartition(b"applied ")
    return Applied(run=run, rung=rung.strip().decode() if found else "")


async def collect_tests(judge: Judge, task: Task, provider: SandboxProvider, options: GraderConfig) -> dict[str, bytes]:
    """Return the files of the tests of a task: what brings them writes these, and the repository holds the others.

    No submission is involved. Paths are relative to the work tree, or absolute.
    """
    tests = judge.tests(task.grader)
    find = _find([*judge.sources(task.grader), *task.hidden_paths])
    private = {"find": find, "touched": b"", **_private(tests)}
    labels = {"task": task.task_id, "role": "grading"}
    async with booted(
        provider, task, lifetime_s=options.sandbox_lifetime_s, network=Network.none, labels=labels
    ) as sandbox:
        then = BEGIN + MARK + BRING
        made = await make_repository(sandbox, task, then=then, private=private, timeout_s=options.setup_timeout_s)
        require_made(task, made, options.setup_timeout_s)
        await _command(sandbox, task, tests.command, options)
        environment = {"W": task.workdir, "P": PRIVATE}
        timeout = options.setup_timeout_s
        done = await sandbox.exec(COLLECT, user="root", cwd="/", env=environment, timeout=timeout)
        require_made(task, done, options.setup_timeout_s)
        try:
            archive = await sandbox.read_file(TAR, user="root", max_bytes=TESTS_BYTES)
        except UnreadableError as error:
            raise SetupError(f"task {task.task_id}: the files of its tests cannot be read: {error}") from error
    return _unpacked(archive)


def _find(paths: Sequence[str]) -> str:
    """Return the shell commands that list the files at these paths and patterns, ended by NUL. `*` matches `/` too."""
    patterns = [path for path in paths if any(sign in path for sign in "*?[")]
    commands = [
        f"[ ! -e {place} ] || find {place} -type f -print0"
        for path in paths
        if path not in patterns
        for place in [shlex.quote(path if path.startswith("/") else f"./{path}")]
    ]
    if patterns:
        alternatives = " -o ".join(f"-path {shlex.quote(f'./{pattern}')}" for pattern in patterns)
        commands.append(f"find . -type f -not -path './.git/*' \\( {alternatives} \\) -print0")
    return "\n".join(commands) + "\n"


def _unpacked(archive: bytes) -> dict[str, bytes]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar.getmembers():
            if member.isfile() and (file := tar.extractfile(member)) is not None:
                found[member.name.removeprefix("./")] = file.read()
    return found


async def _command(sandbox: Sandbox, task: Task, command: str, options: GraderConfig) -> None:
    """Run the command that brings the tests."""
    if not command:
        return
    result: ExecResult = await sandbox.exec(command, cwd=task.workdir, timeout=options.setup_timeout_s)
    if result.exit_code != 0:
        shown = printed(result, 2000)
        raise SetupError(f"task {task.task_id}: `{command[:200]}` ended with {result.exit_code}: {shown}")


def _apply(options: GraderConfig) -> str:
    if options.strict and not options.apply_fallbacks:
        return APPLY_EXACTLY
    rungs = (
        ("strict", *(rung.value for rung in options.apply_fallbacks)) if options.strict else ("3way", "strict", "fuzz")
    )
    return f'RUNGS="{" ".join(rungs)}"\n' + APPLY_BY_RUNGS


def _private(tests: Tests) -> dict[str, str | bytes]:
    files = {
        f"absolute{path}" if path.startswith("/") else f"hidden/{path}": content
        for path, content in tests.files.items()
    }
    return {"test_patch": tests.patch, **files}


def _with_parents(paths: Sequence[bytes]) -> bytes:
    """Return the touched paths and the folders above them, each ended by NUL, as xargs takes them."""
    found: dict[bytes, None] = {}
    for path in paths:
        found[b"./" + path] = None
        for parent in PurePosixPath(path.decode("utf-8", "surrogateescape")).parents:
            found[b"./" + str(parent).encode("utf-8", "surrogateescape")] = None
    return b"".join(path + b"\0" for path in found)
