"""Setup of a task's repository in a sandbox, in the same way before the agent and before grading.

The repository belongs to the agent. Root also keeps a *shadow*, a git directory that the agent cannot access, with the
initial state of the work tree as its base. Changes are captured from the shadow, so the agent's changes to its own
`.git` (commits, configuration, hooks, deletion) have no effect.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rl_agent.errors import ImageError, SetupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rl_agent.sandboxes.base import ExecResult, Sandbox, SandboxProvider
    from rl_agent.tasks.task import Task

Files = Mapping[str, str | bytes]
"""Path -> content."""
PRIVATE: Final = "/var/lib/rl_agent"
"""Folder in the sandbox that only root can access."""
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
	protectNTFS = false
	protectHFS = false
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
SHADOW_ATTRIBUTES: Final = "* -filter -text -ident !eol !working-tree-encoding\n"
"""Overrides what the agent writes to `.gitattributes`: files are captured and written byte for byte."""
TEXT_SHOWN: Final = 4000
COMMANDS_SHOWN: Final = 200
STATEMENT: Final = "/opt/rl_agent_task/PROBLEM_STATEMENT.md"
"""Path of the problem statement in the sandbox. It is outside the repository, so no diff contains it."""
HISTORY_LEFT: Final = 94

# Parts of scripts that root runs. They start few processes, since each costs milliseconds of CPU per rollout.
# $W: work tree. $P: private folder. `own` gives the agent the files that a later part has created.
UNPACK: Final = """\
set -eu
umask 022
tar -xf - -C / --no-same-owner --no-overwrite-dir
cd "$W"
"""
# Removes the git history, since later commits, tags, stashes and reflogs can contain the fix. A new repository gets one
# commit without parents, so no unreachable object remains. The base keeps its id unless the work tree differs from it
# (`git diff` would show a bug that a pre_command has planted). A repository that COMMIT has just made has no history to
# remove, only hidden files.
PRUNE: Final = f"""\
prune() {{
  old=$1 top=$2 new=$P/pruned
  in_old() {{ git --git-dir="$old" --work-tree="$top" -c safe.directory='*' -c core.fsmonitor=false -c core.hooksPath=/dev/null "$@"; }}
  rm -rf "$new"
  base=$(in_old rev-parse -q --verify HEAD || :)
  if [ -z "$base" ] || ! in_old diff --quiet --no-ext-diff --ignore-submodules HEAD; then
    in_old add -u
    base=$(in_old commit-tree -m base "$(in_old write-tree)")
  fi
  branch=$(in_old symbolic-ref -q --short HEAD || echo main)
  git init -q --template= "$new"
  # --update-head-ok: HEAD of the new repository can be this branch, which has no commit yet
  git --git-dir="$new/.git" -c safe.directory='*' -c uploadpack.allowAnySHA1InWant=true fetch -q --depth=1 --no-tags --update-head-ok \
    --upload-pack="git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack" "file://$old" "$base:refs/heads/$branch"
  rm -f "$new/.git/FETCH_HEAD"
  git --git-dir="$new/.git" symbolic-ref HEAD "refs/heads/$branch"
  git --git-dir="$new/.git" config core.logAllRefUpdates true
  [ ! -d "$old/modules" ] || cp -r "$old/modules" "$new/.git/modules"
  rm -rf "$old" "$top/.git"
  mv "$new/.git" "$top/.git"
  in_new() {{ git --git-dir="$top/.git" --work-tree="$top" -c safe.directory='*' "$@"; }}
  in_new read-tree "$base"
  [ "$(in_new rev-list --all --reflog)" = "$base" ] || {{ echo "git history remains: $(in_new rev-list --all --reflog | wc -l) commits" >&2; exit {HISTORY_LEFT}; }}
  reachable=$(in_new rev-list --objects --all | wc -l)
  present=$(in_new count-objects -v | awk '/^(count|in-pack):/ {{ n += $2 }} END {{ print n }}')
  [ "$reachable" = "$present" ] || {{ echo "$present git objects remain, but $reachable are reachable" >&2; exit {HISTORY_LEFT}; }}
}}
for hidden in $HIDDEN; do rm -rf -- "$hidden"; done
place=$PWD
while :; do
  if [ -e "$place/.git" ] && {{ [ "$place" != "${{made:-}}" ] || [ -n "$HIDDEN" ]; }}; then
    prune "$(git --git-dir="$place/.git" -c safe.directory='*' rev-parse --absolute-git-dir)" "$place"
    chown -R agent: "$place/.git"
  fi
  [ "$place" != / ] || break
  place=$(dirname "$place")
done
"""
OWN_ALL: Final = """\
chown -R agent: .
"""
OWN_IF_NEEDED: Final = """\
[ "$(stat -c %U .)" = agent ] || chown -R agent: .
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
  made=$PWD
fi
[ "$(stat -c %U .)" = agent ] || chown -R agent: .
own() { xargs -0 chown -hf agent: <"$P/touched" || :; }  # deleted files are gone
"""
# The shadow holds the files of submodules and other inner repositories as files, so that the agent's work in them is captured.
SHADOW: Final = f"""\
rm -rf "$P/shadow"
if [ -d .git ]; then repository=.git
else repository=$(git -c safe.directory='*' rev-parse --absolute-git-dir)
fi
cp -r --preserve=timestamps "$repository" "$P/shadow"
rm -rf "$P/shadow/hooks" "$P/shadow/info" "$P/shadow/config.worktree" "$P/shadow/index.lock"
printf %s "$SHADOW_CONFIG" >"$P/shadow/config"
mkdir "$P/shadow/info"
printf %s "$SHADOW_ATTRIBUTES" >"$P/shadow/info/attributes"
readlink -f . >"$P/where"
mkdir "$P/inner"
count=0
find . -mindepth 2 -name .git -prune -print0 >"$P/inner/list"
while IFS= read -r -d '' inner; do mv "$inner" "$P/inner/$((++count))"; done <"$P/inner/list"
{SHADOW_GIT} ls-files -s | sed -n 's/^160000 [^\t]*\t//p' | {SHADOW_GIT} update-index --force-remove --stdin
{SHADOW_GIT} add -A .
count=0
while IFS= read -r -d '' inner; do mv "$P/inner/$((++count))" "$inner"; done <"$P/inner/list"
echo "base-tree $({SHADOW_GIT} write-tree)"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A prepared repository."""

    workdir: str
    base_tree: str
    """Id of the git tree with the initial state of the work tree."""


@asynccontextmanager
async def booted(provider: SandboxProvider, task: Task, **options: Any) -> AsyncIterator[Sandbox]:
    """Boot a sandbox from the task's image.

    `options`: see `SandboxProvider.boot`. Raises SetupError if the image does not exist.
    """
    async with AsyncExitStack() as stack:
        try:
            sandbox = await stack.enter_async_context(provider.boot(task.image, **options))
        except ImageError as error:  # not a ConfigError: other tasks of the run have other images
            raise SetupError(f"task {task.task_id}: {error}") from error
        yield sandbox


async def prepare(sandbox: Sandbox, task: Task, *, timeout_s: float) -> Workspace:
    """Set up the repository for the agent. Raises SetupError with the output of a failed command."""
    result = await make_repository(sandbox, task, then=PRUNE + SHADOW, private={}, timeout_s=timeout_s, statement=True)
    require_made(task, result, timeout_s)
    _, _, tree = result.stdout.rpartition(b"base-tree ")
    return Workspace(workdir=task.workdir, base_tree=tree.strip().decode())


async def make_repository(
    sandbox: Sandbox, task: Task, *, then: str, private: Files, timeout_s: float, statement: bool = False
) -> ExecResult:
    """Unpack the task's files, run its pre_commands, make the base commit, and run the script `then`.

    `private` (path -> content) is unpacked into the private folder first. Raises SetupError if a pre_command fails.
    """
    content = _archive(task, private, statement=statement)
    if not task.pre_commands:
        return await _script(sandbox, task, UNPACK + COMMIT + then, content, timeout_s)
    own = OWN_ALL if task.files else OWN_IF_NEEDED
    require_made(task, await _script(sandbox, task, UNPACK + own, content, timeout_s), timeout_s)
    await _run_pre_commands(sandbox, task, timeout_s)
    return await _script(sandbox, task, COMMIT + then, b"", timeout_s)


def require_made(task: Task, result: ExecResult, timeout_s: float) -> None:
    """Raise SetupError if the script that sets up the repository failed."""
    if result.exit_code != 0:
        what = f"took longer than {timeout_s:g} s" if result.timed_out else f"failed ({result.exit_code})"
        shown = printed(result, TEXT_SHOWN)
        raise SetupError(f"task {task.task_id}: setting up the repository in {task.workdir} {what}: {shown}")


async def _run_pre_commands(sandbox: Sandbox, task: Task, timeout_s: float) -> None:
    """Run the task's pre_commands as the agent, in one shell, within `timeout_s` in total.

    The first failing line ends them.
    """
    script = "set -e\n" + "\n".join(task.pre_commands)
    result = await sandbox.exec(script, cwd=task.workdir, timeout=timeout_s)
    if result.exit_code != 0:
        shown = "; ".join(task.pre_commands)[:COMMANDS_SHOWN]
        raise SetupError(
            f"task {task.task_id}: pre_commands `{shown}` "
            + (f"took longer than {timeout_s:g} s" if result.timed_out else f"failed ({result.exit_code})")
            + f": {printed(result, TEXT_SHOWN)}"
        )


async def _script(sandbox: Sandbox, task: Task, script: str, stdin: bytes, timeout_s: float) -> ExecResult:
    environment = {**GIT_ENVIRONMENT, "W": task.workdir, "P": PRIVATE, "HOME": PRIVATE}
    environment |= {"SHADOW_CONFIG": SHADOW_CONFIG, "SHADOW_ATTRIBUTES": SHADOW_ATTRIBUTES}
    environment["HIDDEN"] = " ".join(task.hidden_paths)
    return await sandbox.exec(script, user="root", cwd="/", env=environment, stdin=stdin, timeout=timeout_s)


def _archive(task: Task, private: Files, *, statement: bool) -> bytes:
    """Return a tar archive of the task's files and the files of the private folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        _add_folder(tar, PRIVATE, 0o700)
        for path, content in private.items():
            _add_file(tar, PRIVATE, path, content)
        if statement:
            _add_file(tar, "", STATEMENT.lstrip("/"), task.problem_statement)
        _add_folder(tar, task.workdir, 0o755)
        for path, text in task.files.items():
            _add_file(tar, task.workdir, path, text)
    return buffer.getvalue()


def _add_folder(tar: tarfile.TarFile, path: str, mode: int) -> None:
    info = tarfile.TarInfo(path.strip("/"))
    info.type = tarfile.DIRTYPE
    info.mode = mode
    tar.addfile(info)


def _add_file(tar: tarfile.TarFile, folder: str, path: str, content: str | bytes) -> None:
    if path.startswith("/") or ".." in path.split("/"):
        raise SetupError(
            f"file {path!r} of a task: the path is not inside the repository. Use a relative path without `..`."
        )
    data = content.encode() if isinstance(content, str) else content
    info = tarfile.TarInfo(f"{folder}/{path}".strip("/"))
    info.size = len(data)
    info.mode = 0o755 if data.startswith(b"#!") else 0o644
    tar.addfile(info, io.BytesIO(data))


def printed(result: ExecResult, limit: int) -> str:
    """Return a command's output: head and tail, at most `limit` bytes."""
    both = result.stdout + (b"\n" if result.stdout and result.stderr else b"") + result.stderr
    if len(both) > limit:
        half = limit // 2
        both = both[:half] + f"\n[... {len(both) - 2 * half} bytes dropped ...]\n".encode() + both[-half:]
    return both.decode(errors="replace").strip()
