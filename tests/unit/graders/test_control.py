"""Twins of tasks and mixed runs in real sandboxes: options, the cache, tasks without a control, hostile patches."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.config.grader import WithoutControl
from rl_agent.graders.auto import AutoConfig
from rl_agent.tasks.task import EvalCmdSpec, SweProSpec
from tests.local import calc_task, local_provider, needs_root
from tests.patches import patch_of

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.graders.base import Verdict
    from rl_agent.sandboxes.local.provider import LocalProvider
    from rl_agent.tasks.task import Task

pytestmark = needs_root
BASE = {"calc.py": "def total(a, b):\n    return a + b\n"}
RIGHT = patch_of(BASE, {"calc.py": "def total(a, b):\n    return a - b\n"})
OTHER = patch_of(BASE, {"calc.py": "def total(a, b):\n    return -(b - a)\n"})
LEAVES = patch_of(BASE, {"calc.py": "import os\nos._exit(0)\n"})
EQUAL = patch_of(
    BASE, {"calc.py": "class E:\n    def __eq__(self, other): return True\ndef total(a, b):\n    return E()\n"}
)


@pytest.fixture
def provider(tmp_path: Path) -> LocalProvider:
    return local_provider(tmp_path / "state")


async def judged(provider: LocalProvider, folder: Path, task: Task, patch: bytes, **options: Any) -> Verdict:
    grader = AutoConfig(**{"twins_dir": str(folder / "twins"), "timeout_s": 60, **options}).build()
    verdict: Verdict = await grader.grade(task, patch, provider)
    return verdict


@pytest.mark.parametrize("gold", [RIGHT.decode(), None], ids=["with a gold patch", "without one"])
async def test_right_work_is_solved_and_a_cheat_is_tampered(
    provider: LocalProvider, tmp_path: Path, gold: str | None
) -> None:
    task = calc_task(gold_patch=gold)
    right = await judged(provider, tmp_path, task, OTHER)
    assert (right.status, right.reward) == ("solved", 1.0)
    assert right.metadata["control"]["finding"] == "right"
    assert len(right.metadata["control"]["runs"]) == 4
    assert all(set(run) == {"wrong", "tests", "surprises"} for run in right.metadata["control"]["runs"])
    for cheat in (LEAVES, EQUAL):
        verdict = await judged(provider, tmp_path, task, cheat)
        assert (verdict.status, verdict.reward) == ("tampered", 0.0), verdict.metadata
    off = await judged(provider, tmp_path, task, LEAVES, mixed_runs=False)
    assert (off.status, off.reward) == ("solved", 1.0), "that is what mixed runs are for"


async def test_an_object_that_equals_everything_fails_where_the_expected_value_is_computed(
    provider: LocalProvider, tmp_path: Path
) -> None:
    test = "from calc import total\nfor a, b in [(3, 1), (5, 2)]:\n    expected = (lambda x, y: x - y)(a, b)\n    assert total(a, b) == expected\n"
    task = calc_task(grader=EvalCmdSpec(eval_cmd="python3 t.py", files={"t.py": test}), gold_patch=RIGHT.decode())
    assert (await judged(provider, tmp_path, task, OTHER)).status == "solved"
    assert (await judged(provider, tmp_path, task, EQUAL)).status == "tampered"


async def test_twins_are_made_once_and_made_again_if_their_file_is_damaged(
    provider: LocalProvider, tmp_path: Path
) -> None:
    task = calc_task(gold_patch=RIGHT.decode())
    assert not (tmp_path / "twins").exists()
    await judged(provider, tmp_path, task, b"x", retries=0)
    assert not (tmp_path / "twins").exists(), "a submission that fails needs none"
    await judged(provider, tmp_path, task, OTHER)
    (kept,) = (tmp_path / "twins").iterdir()
    content = kept.read_bytes()
    await judged(provider, tmp_path, task, OTHER)
    assert kept.read_bytes() == content
    kept.write_bytes(b"{")
    assert (await judged(provider, tmp_path, task, OTHER)).status == "solved"
    assert len(kept.read_bytes()) > 100


@pytest.mark.parametrize(
    ("choice", "status", "reward"),
    [(WithoutControl.allow, "solved", 1.0), (WithoutControl.refuse, "infra_error", None)],
)
async def test_a_task_without_a_test_that_can_be_made_wrong_says_so(
    provider: LocalProvider, tmp_path: Path, choice: WithoutControl, status: str, reward: float | None
) -> None:
    task = calc_task(grader=EvalCmdSpec(eval_cmd="true"), gold_patch=RIGHT.decode())
    verdict = await judged(provider, tmp_path, task, OTHER, without_control=choice)
    assert (verdict.status, verdict.reward) == (status, reward)
    if choice is WithoutControl.allow:
        assert not verdict.has_control
    else:
        assert verdict.metadata == {"setup_failed": True}
        assert "grader.without_control" in verdict.log


async def test_tests_that_the_repository_holds_are_found_and_a_control_of_the_row_is_used(
    provider: LocalProvider, tmp_path: Path
) -> None:
    check = "import calc\nassert calc.total(3, 1) == 2\n"
    files = {**BASE, "test_calc.py": check}
    in_repository = calc_task(
        files=files, grader=EvalCmdSpec(eval_cmd="python3 test_calc.py"), gold_patch=RIGHT.decode()
    )
    script = "python3 -c 'import calc; exit(calc.total(3, 1) != 2)'\n"
    spec = EvalCmdSpec(eval_cmd="sh check", files={"check": script}, controls={"check": script.replace("!= 2", "!= 7")})
    with_control = calc_task(grader=spec, gold_patch=RIGHT.decode())
    for task in (in_repository, with_control):
        right = await judged(provider, tmp_path, task, OTHER)
        assert (right.status, right.metadata["control"]["finding"]) == ("solved", "right"), right.log
        assert (await judged(provider, tmp_path, task, EQUAL)).reward == 0.0


@pytest.mark.parametrize("parser", ["raise SystemExit(3)", "while True: pass", "print(1)"])
async def test_a_parser_that_fails_over_a_log_is_the_submissions_failure(
    provider: LocalProvider, tmp_path: Path, parser: str
) -> None:
    spec = SweProSpec(run_script="true\n", parser=parser, selected_test_files=(), fail_to_pass=("t",))
    verdict = await judged(provider, tmp_path, calc_task(grader=spec), OTHER, parser_timeout_s=2)
    assert (verdict.status, verdict.reward) == ("failed", 0.0)
    assert "the log parser" in verdict.metadata["problem"]


def binary_patch(size: int) -> bytes:
    """A patch of some kilobytes that makes a file of `size` zero bytes."""
    data = zlib.compress(bytes(size), 9)
    lines = []
    for start in range(0, len(data), 52):
        part = data[start : start + 52]
        length = chr(ord("A") + len(part) - 1) if len(part) <= 26 else chr(ord("a") + len(part) - 27)
        lines.append(length.encode() + base64.b85encode(part, pad=True))
    head = b"diff --git a/big b/big\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..%s\n" % (
        b"1" * 40
    )
    return head + b"GIT binary patch\nliteral %d\n" % size + b"\n".join(lines) + b"\n\nliteral 0\nHcmV?d00001\n\n"


MODE = b"diff --git a/su b/su\nnew file mode 104755\n--- /dev/null\n+++ b/su\n@@ -0,0 +1 @@\n+x\n"
NUL = b'diff --git "a/x\\000y" "b/x\\000y"\nnew file mode 100644\n--- /dev/null\n+++ "b/x\\000y"\n@@ -0,0 +1 @@\n+x\n'


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(binary_patch(3 << 30), id="three gigabytes", marks=pytest.mark.slow),
        pytest.param(NUL, id="NUL in a path"),
        pytest.param(MODE, id="set-user-id"),
        pytest.param(MODE.replace(b"104755", b"160000"), id="submodule"),
        pytest.param(b"GIT binary patch\nliteral 99999999999\n", id="no header"),
        pytest.param(struct.pack(">Q", 0), id="zeros"),
    ],
)
async def test_a_hostile_patch_is_never_infrastructure(provider: LocalProvider, tmp_path: Path, patch: bytes) -> None:
    task = calc_task(gold_patch=RIGHT.decode())
    alone = await judged(provider, tmp_path, task, patch, retries=0)
    assert alone.reward == 0.0, (alone.status, alone.log)
    beside = await judged(provider, tmp_path, task, OTHER + patch, retries=0)
    assert beside.reward in (0.0, 1.0), (beside.status, beside.log)


async def test_an_exit_code_must_be_zero_although_all_named_tests_passed(
    provider: LocalProvider, tmp_path: Path
) -> None:
    spec = EvalCmdSpec(eval_cmd="exit 3", fail_to_pass=("t.py::a",))
    verdict = await judged(provider, tmp_path, replace(calc_task(), grader=spec), OTHER)
    assert (verdict.status, verdict.metadata["exit_code"]) == ("failed", 3)
