"""What an agent may do to its repository, and that the captured patch carries all of it to a clean copy.

One sandbox per case: capture in one, apply in another, compare the trees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rl_agent.errors import GraderError, SetupError
from rl_agent.graders.sandboxed import APPLY_FAILED
from rl_agent.workspace.capture import NOT_CAPTURED, capture
from rl_agent.workspace.diff import touched_paths
from rl_agent.workspace.workspace import PRIVATE, STATEMENT, prepare
from tests.local import calc_task, local_provider, needs_root

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.sandboxes.base import Sandbox
    from rl_agent.sandboxes.local.provider import LocalProvider

pytestmark = needs_root
AS = "git -c user.name=a -c user.email=a@b"
TASK = calc_task(
    files={
        "a.txt": "l1\nl2\nl3\n",
        "crlf.txt": "x\r\ny\r\n",
        "ren.txt": "r\n" * 30,
        "s.sh": "echo hi\n",
        "deep/er/b.txt": "b\n",
        ".gitignore": "*.log\n",
    }
)
CASES = {
    "modified": "sed -i s/l2/L2/ a.txt",
    "new file": "mkdir -p x/y; echo n > x/y/n.txt",
    "binary changed": r"printf '\x00\x02new' > b.bin; printf '\x00\x01' > a.txt",
    "binary big": "head -c 300000 /dev/urandom > nb.bin",
    "carriage returns": r"printf 'x\r\nz\r\n' > crlf.txt",
    "bytes of no encoding": r"printf 'caf\xe9\n' > lat.txt",
    "renamed with git": "git mv ren.txt ren2.txt",
    "renamed without git": "mv ren.txt ren3.txt",
    "mode": "chmod +x s.sh",
    "link inside": "ln -s a.txt link; ln -s ../../a.txt deep/er/up",
    "deleted": "rm a.txt",
    "deleted folder": "rm -r deep",
    "folder for file": "rm a.txt; mkdir a.txt; echo 1 > a.txt/b",
    "committed": "sed -i s/l2/L2/ a.txt; git add -A; git -c user.name=a -c user.email=a@b commit -qm wip",
    "committed and deleted": "rm a.txt; git -c user.name=a -c user.email=a@b commit -qam wip",
    "other branch": "git checkout -q -b z; echo 1 > z; git add z; git -c user.name=a -c user.email=a@b commit -qm z",
    "staged": "sed -i s/l2/L2/ a.txt; git add a.txt",
    "staged and changed again": "echo 1 > n; git add n; echo 2 > n",
    "no newline at end": r"printf 'l1\nl2\nl3' > a.txt",
    "empty file": "touch empty",
    "attributes without diff": "echo '*.txt -diff' > .gitattributes; sed -i s/l2/L2/ a.txt",
    "hostile config": "git config diff.noprefix true; git config color.ui always; git config diff.external 'echo HACK'; "
    "git config core.autocrlf true; git config core.fileMode false; sed -i s/l2/L2/ a.txt; chmod +x s.sh",
    "assumed unchanged": "git update-index --assume-unchanged a.txt; sed -i s/l2/L2/ a.txt",
    "excluded by the repository": "echo '*.py' > .git/info/exclude; echo 1 > m.py",
    "excluded by the user": "git config --global core.excludesFile ~/ignore; echo '*.py' > ~/ignore; echo 1 > m.py",
    "repository inside": "git init -q sub; echo 1 > sub/f; git -C sub add -A; "
    "git -C sub -c user.name=a -c user.email=a@b commit -qm x",
    "odd names": r"""echo 1 > 'naïve "é" .txt'; echo 1 > $'tab\there'; echo 1 > $'new\nline'; echo 1 > ' lead'""",
    "git directory gone": "rm -rf .git; echo 1 > a.txt",
    "git directory replaced": "rm -rf .git; git init -q; echo 1 > a.txt; git add -A; "
    "git -c user.name=a -c user.email=a@b commit -qm x",
    "names that other systems forbid": r"""echo 1 > 'a\b'; mkdir 'git~1'; echo 1 > 'git~1/x'; echo 1 > 'end. '; echo 1 > con""",
    "encoding by attributes": "echo '* working-tree-encoding=UTF-16' > .gitattributes; printf 'odd' > a.txt",
    "line ends by attributes": r"""echo '* text eol=crlf' > .gitattributes; printf 'a\nb\r\nc\r' > a.txt; printf 'x\r\n' > new""",
    "ident by attributes": r"""echo '* ident' > .gitattributes; printf '$Id$ $Id: 1 $\n' > a.txt""",
    "merge and unknown attributes": "echo '* merge=binary diff=x binary foo=bar' > .gitattributes; sed -i s/l2/L2/ a.txt",
    "modules of nothing": "printf '[submodule \"../x\"]\\n\\tpath = ../..\\n\\turl = ext::sh\\n' > .gitmodules; echo 1 > n",
    "git file inside": "mkdir sub; echo 'gitdir: /etc' > sub/.git; echo 1 > sub/f",
    "git link inside": "mkdir sub; ln -s /etc sub/.git; echo 1 > sub/f",
    "special files": "mkfifo pipe; rm s.sh; mkfifo s.sh; ln -s loop loop; ln -s nowhere gone; echo 1 > n",
    "set-user-id": "echo 1 > su; chmod 6755 su; chmod 4755 s.sh",
    "sticky and closed": "mkdir t; echo 1 > t/x; chmod 1000 t; echo 1 > closed; chmod 0 closed",
    "clean filter": "git config filter.x.clean 'sed s/L2/EVIL/'; echo 'a.txt filter=x' > .gitattributes; "
    "sed -i s/l2/L2/ a.txt",
}
LIST = "find . -path ./.git -prune -o \\( -type f -o -type l \\) -printf '%p %y %m %l ' -exec sh -c '[ -L \"$1\" ] || sha1sum <\"$1\"' - {} \\; -printf '\\0' | sort -z"


@pytest.fixture
def provider(tmp_path: Path) -> LocalProvider:
    return local_provider(tmp_path / "state")


async def tree(sandbox: Sandbox) -> bytes:
    return (await sandbox.exec(LIST, cwd=TASK.workdir, timeout=60, check=True)).stdout


async def apply(sandbox: Sandbox, patch: bytes) -> int:
    await sandbox.write_file("/tmp/patch", patch)
    command = "git -c core.protectNTFS=false -c core.protectHFS=false apply --whitespace=nowarn /tmp/patch"
    return (await sandbox.exec(command, cwd=TASK.workdir, timeout=60)).exit_code


@pytest.mark.parametrize("case", CASES)
async def test_the_patch_makes_the_same_tree_elsewhere(provider: LocalProvider, case: str) -> None:
    async with provider.boot("host", lifetime_s=120) as agents:
        workspace = await prepare(agents, TASK, timeout_s=60)
        await agents.exec(CASES[case], cwd=TASK.workdir, timeout=60, check=True)
        patch = await capture(agents, workspace)
        await agents.exec(
            "find . -type p -delete; chmod -R u+rwX,g-s,u-s .; chmod 644 closed || :",
            cwd=TASK.workdir,
            user="root",
            timeout=60,
        )
        wanted = await tree(agents)
    assert patch
    async with provider.boot("host", lifetime_s=120) as clean:
        await prepare(clean, TASK, timeout_s=60)
        assert await apply(clean, patch) == 0
        assert await tree(clean) == wanted


@pytest.mark.parametrize(
    "command",
    [
        "true",
        "echo 1 > ignored.log",
        "git commit -q --allow-empty -m x || true",
        "rm -rf .git",
        "mkdir .GIT; echo 1 > .GIT/x",
        "mkfifo pipe",
    ],
)
async def test_no_change_is_an_empty_patch(provider: LocalProvider, command: str) -> None:
    async with provider.boot("host", lifetime_s=120) as sandbox:
        workspace = await prepare(sandbox, TASK, timeout_s=60)
        await sandbox.exec(command, cwd=TASK.workdir, timeout=60)
        assert await capture(sandbox, workspace) == b""


async def test_nothing_that_the_agent_configured_is_run_by_the_capture(provider: LocalProvider) -> None:
    script = """
    for hook in pre-commit post-index-change post-checkout reference-transaction; do
      printf '#!/bin/sh\\ntouch /tmp/HACKED\\n' > .git/hooks/$hook 2>/dev/null || { mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch /tmp/HACKED\\n' > .git/hooks/$hook; }
      chmod +x .git/hooks/$hook
    done
    git config core.fsmonitor 'touch /tmp/HACKED; false'
    git config --global core.fsmonitor 'touch /tmp/HACKED; false'
    git config diff.x.textconv 'touch /tmp/HACKED; cat'
    git config filter.x.clean 'touch /tmp/HACKED; cat'
    echo '* diff=x filter=x' > .gitattributes
    echo new > a.txt
    """
    async with provider.boot("host", lifetime_s=120) as sandbox:
        workspace = await prepare(sandbox, TASK, timeout_s=60)
        await sandbox.exec(script, cwd=TASK.workdir, timeout=60)
        await sandbox.exec("rm -f /tmp/HACKED", timeout=60)
        assert b"+new" in await capture(sandbox, workspace)
        with pytest.raises(FileNotFoundError):
            await sandbox.read_file("/tmp/HACKED", user="root")


WITH_SUBMODULE = calc_task(
    files={},
    pre_commands=(
        f"(cd /tmp && git init -q lib && cd lib && echo 1 > f && git add f && {AS} commit -qm x)",
        "git init -q -b main . && git -c protocol.file.allow=always submodule add -q /tmp/lib lib",
        f"echo 1 > a && git add -A && {AS} commit -qm base",
    ),
)


async def test_no_submodules_configuration_is_run_by_the_capture(provider: LocalProvider) -> None:
    attack = r"""
    printf '#!/bin/sh\ntouch /tmp/HACKED\n' > /tmp/program && chmod 755 /tmp/program
    git config -f .git/modules/lib/config core.fsmonitor /tmp/program && echo 2 > a
    """
    async with provider.boot("host", lifetime_s=120) as sandbox:
        workspace = await prepare(sandbox, WITH_SUBMODULE, timeout_s=60)
        await sandbox.exec(attack, cwd=WITH_SUBMODULE.workdir, timeout=60, check=True)
        assert b"+2" in await capture(sandbox, workspace)
        with pytest.raises(FileNotFoundError):
            await sandbox.read_file("/tmp/HACKED", user="root")


@pytest.mark.parametrize(
    ("command", "touched"),
    [
        ("echo 2 > a", [b"a"]),
        ("echo 2 > a; echo 2 > lib/f", [b"a", b"lib/f"]),
        (f"echo 2 > a; cd lib; echo 2 > f; {AS} commit -qam y", [b"a", b"lib/f"]),
        ("echo 2 > a; rm -rf lib", [b"a", b"lib/f"]),
        ("rm -rf lib/.git; echo 2 > lib/g", [b"lib/g"]),
        ("true", []),
    ],
)
async def test_work_in_a_submodule_is_captured_as_files(
    provider: LocalProvider, command: str, touched: list[bytes]
) -> None:
    async with provider.boot("host", lifetime_s=120) as sandbox:
        workspace = await prepare(sandbox, WITH_SUBMODULE, timeout_s=60)
        await sandbox.exec(command, cwd=WITH_SUBMODULE.workdir, timeout=60, check=True)
        assert touched_paths(await capture(sandbox, workspace)) == touched


async def test_the_shadow_is_out_of_the_agents_reach(provider: LocalProvider) -> None:
    async with provider.boot("host", lifetime_s=120) as sandbox:
        await prepare(sandbox, TASK, timeout_s=60)
        for command in (
            f"ls {PRIVATE}",
            f"rm -rf {PRIVATE}",
            f"mv {PRIVATE} /tmp/x",
            f"echo > {PRIVATE}/shadow/config",
        ):
            assert (await sandbox.exec(command, timeout=60)).exit_code != 0


async def test_what_the_agent_left_running_is_ended_before_the_capture(provider: LocalProvider) -> None:
    async with provider.boot("host", lifetime_s=120) as sandbox:
        workspace = await prepare(sandbox, TASK, timeout_s=60)
        await sandbox.exec("setsid -f sh -c 'while :; do date +%N > a.txt; done'", cwd=TASK.workdir, timeout=60)
        await capture(sandbox, workspace)
        alive = "awk '/^State:/ {state=$2} /^Uid:/ && $2 != 0 && state !~ /[ZX]/' /proc/[0-9]*/status"
        left = await sandbox.exec(alive, user="root", timeout=60)
        assert left.stdout == b""


async def test_a_failing_capture_is_an_error_not_an_empty_patch(provider: LocalProvider) -> None:
    async with provider.boot("host", lifetime_s=120) as sandbox:
        workspace = await prepare(sandbox, TASK, timeout_s=60)
        await sandbox.exec(f"rm -rf {PRIVATE}/shadow/objects", user="root", timeout=60)
        await sandbox.exec("echo 1 > a.txt", cwd=TASK.workdir, timeout=60)
        with pytest.raises(GraderError, match="capturing"):
            await capture(sandbox, workspace)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("cd ..; mv repo gone; ln -s /etc repo", "a link stands in its place"),
        ("cd ..; mv repo gone; ln -s gone repo", "a link stands in its place"),
        ("cd ..; rm -rf repo", "is gone"),
        ("cd ..; rm -rf repo; echo 1 > repo", "is gone"),
    ],
    ids=["link elsewhere", "link to itself", "removed", "a file"],
)
async def test_a_tree_that_cannot_be_read_is_the_agents_doing(
    provider: LocalProvider, command: str, reason: str
) -> None:
    async with provider.boot("host", lifetime_s=120) as sandbox:
        workspace = await prepare(sandbox, TASK, timeout_s=60)
        await sandbox.exec("chown agent: ..", user="root", cwd=TASK.workdir, timeout=60, check=True)
        await sandbox.exec(command, cwd=TASK.workdir, timeout=60)
        patch = await capture(sandbox, workspace)
    assert patch.startswith(NOT_CAPTURED), patch
    assert reason in patch.decode()


IMAGE_REPOSITORY = f"""
mkdir -p {TASK.workdir} && cd {TASK.workdir} && git init -q -b $BRANCH && echo 1 > old && git add -A && {AS} commit -qm first
echo 2 > old && {AS} commit -qam base && git rev-parse HEAD > /tmp/base
echo SECRET > fix && git add fix && {AS} commit -qm 'the fix' && git rev-parse HEAD > /tmp/fix
git tag -a -m t v2 2>/dev/null || git tag v2; git branch future; git update-ref refs/remotes/origin/main HEAD; git notes add -m n 2>/dev/null || :
git reset -q --hard HEAD~1 && echo stashed > old && {AS} stash -q && echo dangling | git hash-object -w --stdin >/tmp/blob
"""


@pytest.mark.parametrize(
    ("branch", "dirty"),
    [("trunk", False), ("trunk", True), ("master", False), ("master", True), ("main", False), ("", False)],
    ids=["trunk", "trunk-dirty", "master", "master-dirty", "main", "detached"],
)
async def test_the_history_of_the_images_repository_is_gone_but_for_the_base_commit(
    provider: LocalProvider, branch: str, dirty: bool
) -> None:
    script = IMAGE_REPOSITORY + ("" if branch else "git checkout -q --detach\n")
    script += "echo bug > old && echo 1 > untracked" if dirty else ""
    async with provider.boot("host", lifetime_s=120) as sandbox:
        environment = {"BRANCH": branch or "trunk"}
        await sandbox.exec(script, user="root", env=environment, timeout=60, check=True)
        pre_commands = ("echo 3 > made",) if dirty else ()
        workspace = await prepare(sandbox, calc_task(files={}, pre_commands=pre_commands), timeout_s=60)
        assert await capture(sandbox, workspace) == b"", "what was there before the agent is no work of the agent"
        look = """
        git rev-list --all --reflog | wc -l; git status --porcelain | grep -v '^??' | wc -l; git stash list | wc -l
        git for-each-ref | wc -l; git fsck --unreachable --no-reflogs 2>/dev/null | grep -c unreachable
        git cat-file -e $(cat /tmp/fix) 2>/dev/null && echo LEFT; git cat-file -e $(cat /tmp/blob) 2>/dev/null && echo LEFT
        grep -r SECRET . && echo LEFT; [ "$(git rev-parse HEAD)" = "$(cat /tmp/base)" ] && echo same; git symbolic-ref HEAD
        git -c user.name=a -c user.email=a@b commit -q --allow-empty -m mine && stat -c %U .git/HEAD old
        """
        found = await sandbox.exec(look, cwd=TASK.workdir, timeout=60)
        same = b"" if dirty else b"same\n"
        assert found.stdout == b"1\n0\n0\n1\n0\n" + same + f"refs/heads/{branch or 'main'}\nagent\nagent\n".encode(), (
            found
        )
        await sandbox.exec("echo 5 > old", cwd=TASK.workdir, timeout=60)
        assert (b"-bug\n+5\n" if dirty else b"-2\n+5\n") in await capture(sandbox, workspace)


async def test_hidden_tests_of_the_image_and_the_statement_are_where_they_belong(provider: LocalProvider) -> None:
    script = f"mkdir -p {TASK.workdir}/r2e_tests /elsewhere && cd {TASK.workdir} && echo 1 > r2e_tests/t && echo 1 > a && echo 1 > /elsewhere/t"
    task = calc_task(files={}, hidden_paths=("r2e_tests", "/elsewhere"))
    async with provider.boot("host", lifetime_s=120) as sandbox:
        await sandbox.exec(script, user="root", timeout=60, check=True)
        workspace = await prepare(sandbox, task, timeout_s=60)
        found = await sandbox.exec(
            f"ls; ls /elsewhere; git log --all -p | grep -c r2e_tests; cat {STATEMENT}", cwd=TASK.workdir, timeout=60
        )
        assert found.stdout == b"a\n0\n" + task.problem_statement.encode()
        assert await capture(sandbox, workspace) == b""


async def test_pre_commands_run_as_the_agent_and_are_part_of_the_base(provider: LocalProvider) -> None:
    task = calc_task(pre_commands=("id -un > who", "test -f calc.py"))
    async with provider.boot("host", lifetime_s=120) as sandbox:
        workspace = await prepare(sandbox, task, timeout_s=60)
        assert await sandbox.read_file(f"{task.workdir}/who") == b"agent\n"
        assert await capture(sandbox, workspace) == b""
        status = await sandbox.exec("git status --porcelain", cwd=task.workdir, timeout=60)
        assert status.stdout == b""


async def test_a_failing_pre_command_is_a_setup_error_with_its_output(provider: LocalProvider) -> None:
    async with provider.boot("host", lifetime_s=120) as sandbox:
        with pytest.raises(SetupError, match="because of this"):
            await prepare(sandbox, calc_task(pre_commands=("echo because of this; exit 3",)), timeout_s=60)


async def test_the_base_commit_is_the_same_everywhere(provider: LocalProvider) -> None:
    commits = set()
    for _ in range(2):
        async with provider.boot("host", lifetime_s=120) as sandbox:
            await prepare(sandbox, TASK, timeout_s=60)
            commits.add((await sandbox.exec("git rev-parse HEAD", cwd=TASK.workdir, timeout=60, check=True)).stdout)
    assert len(commits) == 1


def test_the_exit_code_for_a_patch_that_does_not_apply_is_none_of_gits() -> None:
    assert APPLY_FAILED not in (0, 1, 128, 129)
