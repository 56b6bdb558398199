"""What a submission writes where the grader reads: it costs the submission its reward, and the grader neither memory nor an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rl_agent.graders.auto import AutoConfig
from rl_agent.graders.outcomes import FILE
from rl_agent.tasks.task import EvalCmdSpec, F2pSpec
from rl_agent.workspace.capture import MOST_BYTES, capture, why_not_captured
from rl_agent.workspace.diff import touched_paths
from rl_agent.workspace.workspace import prepare
from tests.local import calc_task, local_provider, needs_root
from tests.patches import patch_of

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.graders.base import Verdict
    from rl_agent.tasks.task import GraderSpec

pytestmark = needs_root
BASE = {"calc.py": "x = 1\n"}
NAMED = EvalCmdSpec(eval_cmd="python3 calc.py", fail_to_pass=("t.py::test_a",))


async def judged(folder: Path, spec: GraderSpec, text: str) -> Verdict:
    grader = AutoConfig(retries=0, timeout_s=60).build()
    provider = local_provider(folder / "state")
    patch = patch_of(BASE, {"calc.py": text})
    verdict: Verdict = await grader.grade(calc_task(files=BASE, grader=spec), patch, provider)
    return verdict


@pytest.mark.parametrize(
    "text",
    [
        f"open({FILE!r}, 'w').write('[' * 100000)\n",
        f"open({FILE!r}, 'w').write('[\"t.py::test_a\", ' + '[' * 100000)\n",
        f"import os\nos.mkdir({FILE!r})\n",
        f"import os\nos.symlink({FILE!r}, {FILE!r})\n",
        f"import os\nos.symlink('/proc/self/mem', {FILE!r})\n",
        f"import os\nos.mkfifo({FILE!r})\n",
        f"import os\nos.ftruncate(os.open({FILE!r}, os.O_CREAT | os.O_RDWR), 1 << 40)\n",
    ],
    ids=["nested", "nested outcome", "folder", "link to itself", "link to memory", "pipe", "a terabyte"],
)
async def test_what_is_no_file_of_the_plug_ins_confirms_no_test(tmp_path: Path, text: str) -> None:
    verdict = await judged(tmp_path, NAMED, text)
    assert (verdict.status, verdict.reward) == ("failed", 0.0), verdict.log
    assert "exit_code" not in verdict.metadata, "the command itself succeeded"


TEST_PATCH = (
    "diff --git a/new/t.py b/new/t.py\nnew file mode 100644\n--- /dev/null\n+++ b/new/t.py\n@@ -0,0 +1 @@\n+assert 0\n"
)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (EvalCmdSpec(eval_cmd="python3 hidden_test.py", files={"hidden_test.py": "assert 0\n"}), "hidden_test.py/x"),
        (EvalCmdSpec(eval_cmd="python3 checks/t.py", files={"checks/t.py": "assert 0\n"}), "checks"),
        (F2pSpec(script="assert 0\n", script_path="checks/t.py"), "checks"),
        (F2pSpec(script="assert 0\n", script_path="t.py"), "t.py/x/y"),
        (F2pSpec(script="assert 0\n", test_patch=TEST_PATCH), "new"),
    ],
    ids=["folder for a hidden file", "file for its folder", "file for the script's", "folder for it", "test patch"],
)
@pytest.mark.parametrize("strict", [True, False])
async def test_what_stands_in_the_way_of_the_tests_is_the_submissions_fault(
    tmp_path: Path, spec: GraderSpec, path: str, strict: bool
) -> None:
    grader = AutoConfig(strict=strict, retries=0).build()
    provider = local_provider(tmp_path / "state")
    patch = patch_of(BASE, {path: "a\n"})
    verdict = await grader.grade(calc_task(files=BASE, grader=spec), patch, provider)
    assert (verdict.reward, verdict.metadata.get("setup_failed")) == (0.0, None), verdict.log
    assert path in verdict.log or not strict
    if strict:  # the rest of a patch is judged, and says that some was dropped
        both = await grader.grade(
            calc_task(files=BASE, grader=spec), patch + patch_of(BASE, {"calc.py": "#\n"}), provider
        )
        assert (both.status, list(both.metadata["dropped_paths"])) == ("failed", [path])
        assert both.metadata["signals"] == {"protected_path": [path]}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("head -c 40M /dev/urandom > big.bin", "41943040 big.bin"),
        ("truncate -s 3T core", "3298534883328 core"),
        ("truncate -s 3T calc.py", "3298534883328 calc.py"),
        ("for n in $(seq 9); do truncate -s 40M part$n; done", "41943040 part1"),
        ("head -c 25M /dev/urandom > big.bin", f"{MOST_BYTES} bytes or more"),
    ],
    ids=["more than half of the disk", "sparse", "sparse in the base's place", "many", "a large patch"],
)
async def test_what_is_too_large_to_be_captured_is_the_submissions_fault(
    tmp_path: Path, command: str, said: str
) -> None:
    provider = local_provider(tmp_path / "state", disk_mb=128 if "or more" in said else 64)
    task = calc_task(files=BASE, grader=NAMED)
    async with provider.boot("host", lifetime_s=120) as sandbox:
        workspace = await prepare(sandbox, task, timeout_s=60)
        await sandbox.exec(command, cwd=task.workdir, timeout=60, check=True)
        patch = await capture(sandbox, workspace, timeout_s=60)
    assert len(patch) < 1000
    verdict = await AutoConfig().build().grade(task, patch, provider)
    assert (verdict.status, verdict.reward) == ("apply_failed", 0.0)
    assert said in verdict.log


@pytest.mark.parametrize(
    "command",
    ["echo '*.log' > .gitignore; truncate -s 3T x.log; echo 2 > calc.py", "rm base.bin", "echo 2 > calc.py"],
    ids=["ignored", "deleted", "in the base"],
)
async def test_large_files_that_are_no_part_of_the_work_do_not_count(tmp_path: Path, command: str) -> None:
    task = calc_task(files=BASE, pre_commands=("head -c 2M /dev/urandom > base.bin",))
    async with local_provider(tmp_path / "state", disk_mb=64).boot("host", lifetime_s=120) as sandbox:
        workspace = await prepare(sandbox, task, timeout_s=60)
        await sandbox.exec(command, cwd=task.workdir, timeout=60, check=True)
        patch = await capture(sandbox, workspace, timeout_s=60)
    assert why_not_captured(patch) is None
    assert touched_paths(patch)
