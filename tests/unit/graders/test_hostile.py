"""What a submission writes where the grader reads: it costs the submission its reward, and the grader neither memory nor an error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.graders.auto import AutoConfig
from rl_agent.graders.confirm import CHANNEL
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
SCRIPT = F2pSpec(script="import calc\nassert calc.x == 2\n")
KNOWS_THE_NONCE = """\
import json, os, sys
frame = sys._getframe()
while "nonce" not in frame.f_locals:
    frame = frame.f_back
report = {"nonce": frame.f_locals["nonce"], **json.loads(%r)}
os.write(frame.f_locals["channel"], json.dumps(report).encode() + b"\\n")
os._exit(0)
"""


async def judged(folder: Path, spec: GraderSpec, text: str) -> Verdict:
    grader = AutoConfig(retries=0, timeout_s=60).build()
    provider = local_provider(folder / "state")
    patch = patch_of(BASE, {"calc.py": text})
    verdict: Verdict = await grader.grade(calc_task(files=BASE, grader=spec), patch, provider)
    return verdict


@pytest.mark.parametrize(
    "text",
    [
        f"open({CHANNEL!r}, 'w').write('[' * 100000)\n",
        f"open({CHANNEL!r}, 'w').write('[\"t.py::test_a\", ' + '[' * 100000)\n",
        f"import os\nos.mkdir({CHANNEL!r})\n",
        f"import os\nos.symlink({CHANNEL!r}, {CHANNEL!r})\n",
        f"import os\nos.mkfifo({CHANNEL!r})\n",
        f"import os\nos.ftruncate(os.open({CHANNEL!r}, os.O_CREAT | os.O_RDWR), 1 << 40)\n",
    ],
    ids=["nested", "nested outcome", "folder", "link to itself", "pipe", "a terabyte"],
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


async def test_a_report_that_is_nested_without_end_is_none(tmp_path: Path) -> None:
    text = "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'\\n' + b'[' * 60000 + b'\\n')\n    except OSError: pass\n"
    verdict = await judged(tmp_path, SCRIPT, text + "x = 1\n")
    assert (verdict.status, verdict.reward) == ("failed", 0.0), verdict.log


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"code": 0, "results": ["passed", "passed"], "others": {}, "changed": []},
        {"code": 0, "results": [], "others": {}, "changed": []},
        {"code": "0", "results": ["passed"], "others": {}, "changed": []},
        {"code": 0, "results": ["passed"], "others": {"failed": "x"}, "changed": []},
        {"code": 0, "results": ["passed"], "others": [], "changed": []},
        {"code": 0, "results": ["passed"], "others": {}, "changed": 1},
    ],
    ids=["empty", "too many", "too few", "code", "count", "others", "changed"],
)
async def test_a_report_that_the_runner_cannot_have_written_is_forged(tmp_path: Path, report: dict[str, Any]) -> None:
    verdict = await judged(tmp_path, SCRIPT, KNOWS_THE_NONCE % json.dumps(report))
    assert (verdict.status, verdict.reward) == ("tampered", 0.0), verdict.log
    assert "forged_report" in verdict.metadata["signals"]
