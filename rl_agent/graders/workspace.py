"""Makes a task's repository in a sandbox, the same way before the agent and before grading.

The repository belongs to the agent. Beside it, out of the agent's reach, lies the *shadow*: a git directory of root's with
the state of the work tree at this moment as its base. What the agent does to its own `.git` (commits, configuration, hooks,
deletion) has no influence on what is captured from the shadow.
"""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rl_agent.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.sandboxes.base import ExecResult, Sandbox
    from rl_agent.tasks.task import Task

PRIVATE: Final = "/var/lib/rl_agent"
"""A folder of root's in the sandbox."""
GIT_ENVIRONMENT: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "rl_agent",
    "GIT_AUTHOR_EMAIL": "rl_agent@localhost",
    "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "rl_agent",
    "GIT_COMMITTER_EMAIL": "rl_agent@localhost",
    "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z",
    "GIT_TERMINAL_PROMPT": "0",
}
SHADOW_GIT: Final = f"git --git-dir={PRIVATE}/shadow --work-tree=."
SHADOW_CONFIG: Final = """\
[core]
	repositoryformatversion = 0
	bare = false
	fileMode = true
	autocrlf = false
	symlinks = true
	quotePath = true
	fsmonitor = false
	untrackedCache = false
	hooksPath = /dev/null
	attributesFile = /dev/null
	excludesFile = /dev/null
	looseCompression = 0
[gc]
	auto = 0
[maintenance]
	auto = false
[advice]
	addEmbeddedRepo = false
[safe]
	directory = *
"""
TEXT_SHOWN: Final = 4000

# Pieces of one script, run by root: as few processes as will do, as each costs a rollout milliseconds of CPU.
# $W is the work tree, $P the private folder.
UNPACK: Final = """\
set -eu
umask 022
mkdir -p "$W" "$P"
chmod 700 "$P"
tar -xf - -C "$P" --no-same-owner
cd "$W"
[ ! -d "$P/files" ] || cp -r "$P/files/." .
"""
OWN: Final = """\
chown -R agent: .
"""
COMMIT: Final = """\
set -eu
umask 022
cd "$W"
if [ ! -e .git ]; then
  git -c init.defaultBranch=main init -q --template=
  git --git-dir=.git --work-tree=. add -A -f
  git --git-dir=.git --work-tree=. -c gc.auto=0 -c maintenance.auto=false commit -q --allow-empty -m base
  chown -R agent: .
elif [ "$(stat -c %U .)" != agent ]; then
  chown -R agent: .
fi
"""
SHADOW: Final = f"""\
rm -rf "$P/shadow"
if [ -d .git ]; then repository=.git
else repository=$(git -c safe.directory='*' rev-parse --absolute-git-dir)
fi
cp -r --preserve=timestamps "$repository" "$P/shadow"
rm -rf "$P/shadow/hooks" "$P/shadow/info" "$P/shadow/config.worktree" "$P/shadow/index.lock"
printf %s "$SHADOW_CONFIG" >"$P/shadow/config"
mkdir "$P/shadow/info"
echo '* -filter' >"$P/shadow/info/attributes"
{SHADOW_GIT} add -A .
echo "base-tree $({SHADOW_GIT} write-tree)"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A prepared repository."""

    workdir: str
    base_tree: str
    """Id of the git tree that the work tree was when the agent got it."""


async def prepare(sandbox: Sandbox, task: Task, *, timeout_s: float) -> Workspace:
    """Make the repository as the agent gets it; raises SetupError with what a failing command printed."""
    result = await make_repository(sandbox, task, then=SHADOW, extra={}, timeout_s=timeout_s)
    require_made(task, result, timeout_s)
    _, _, tree = result.stdout.rpartition(b"base-tree ")
    return Workspace(workdir=task.workdir, base_tree=tree.strip().decode())


async def make_repository(
    sandbox: Sandbox, task: Task, *, then: str, extra: Mapping[str, Mapping[str, str | bytes]], timeout_s: float
) -> ExecResult:
    """Unpack the task's files, run its pre_commands, make sure there is a commit, and go on with the script `then`.

    `extra` is unpacked into the private folder, folder by folder. Returns the result of the last script; a failing
    pre_command raises SetupError.
    """
    content = archive({"files": task.files, **extra})
    if not task.pre_commands:
        return await _script(sandbox, task, UNPACK + COMMIT + then, content, timeout_s)
    require_made(task, await _script(sandbox, task, UNPACK + OWN, content, timeout_s), timeout_s)
    await _run_pre_commands(sandbox, task, timeout_s)
    return await _script(sandbox, task, COMMIT + then, b"", timeout_s)


def require_made(task: Task, result: ExecResult, timeout_s: float) -> None:
    """Raise SetupError if the script that made the repository failed."""
    if result.exit_code != 0:
        what = f"took longer than {timeout_s:g} s" if result.timed_out else f"failed ({result.exit_code})"
        shown = printed(result, TEXT_SHOWN)
        raise SetupError(f"task {task.task_id}: making the repository in {task.workdir} {what}: {shown}")


async def _run_pre_commands(sandbox: Sandbox, task: Task, timeout_s: float) -> None:
    """Run the task's own commands, as the agent, in its work tree."""
    for command in task.pre_commands:
        result = await sandbox.exec(command, cwd=task.workdir, timeout=timeout_s)
        if result.exit_code != 0:
            raise SetupError(
                f"task {task.task_id}: pre_command `{command[:200]}` "
                + (f"ran longer than {timeout_s:g} s" if result.timed_out else f"ended with {result.exit_code}")
                + f": {printed(result, TEXT_SHOWN)}"
            )


async def _script(sandbox: Sandbox, task: Task, script: str, stdin: bytes, timeout_s: float) -> ExecResult:
    environment = {**GIT_ENVIRONMENT, "W": task.workdir, "P": PRIVATE, "HOME": PRIVATE, "SHADOW_CONFIG": SHADOW_CONFIG}
    return await sandbox.exec(script, user="root", cwd="/", env=environment, stdin=stdin, timeout=timeout_s)


def archive(folders: Mapping[str, Mapping[str, str | bytes]]) -> bytes:
    """A tar archive of small files: folder -> path in it -> content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for folder, files in folders.items():
            for path, content in files.items():
                if path.startswith("/") or ".." in path.split("/"):
                    raise SetupError(f"a task's file must lie in its repository, got {path!r}")
                data = content.encode() if isinstance(content, str) else content
                info = tarfile.TarInfo(f"{folder}/{path}")
                info.size = len(data)
                info.mode = 0o755 if data.startswith(b"#!") else 0o644
                tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def printed(result: ExecResult, limit: int) -> str:
    """What a command printed: head and tail, at most `limit` bytes of it."""
    both = result.stdout + (b"\n" if result.stdout and result.stderr else b"") + result.stderr
    if len(both) > limit:
        half = limit // 2
        both = both[:half] + f"\n[... {len(both) - 2 * half} bytes dropped ...]\n".encode() + both[-half:]
    return both.decode(errors="replace").strip()
