"""Verdicts of the eval_cmd grader, in real sandboxes; sandboxes that get lost are faked."""

from __future__ import annotations

from contextlib import asynccontextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.config.grader import Rung
from rl_agent.errors import GraderError, SandboxError
from rl_agent.graders.auto import AutoConfig
from rl_agent.graders.base import VerdictStatus
from rl_agent.graders.screen import Screened
from rl_agent.tasks.task import EvalCmdSpec, F2pSpec
from rl_agent.workspace.capture import MOST_BYTES
from tests.local import calc_task, eval_cmd, local_provider, needs_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rl_agent.sandboxes.local.provider import LocalProvider

FIX = b"""\
diff --git a/calc.py b/calc.py
--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,2 @@
 def total(a, b):
-    return a + b
+    return a - b
"""


class LosingProvider:
    """Loses the first `losses` sandboxes that it is asked for."""

    def __init__(self, provider: LocalProvider | None, losses: int) -> None:
        self.provider = provider
        self.losses = losses
        self.boots = 0

    @asynccontextmanager
    async def boot(self, image: str, **options: Any) -> AsyncIterator[Any]:
        self.boots += 1
        if self.boots <= self.losses:
            raise SandboxError("lost it")
        assert self.provider is not None
        async with self.provider.boot(image, **options) as sandbox:
            yield sandbox

    async def sweep(self) -> int:
        return 0


@pytest.fixture
def provider(tmp_path: Path) -> LocalProvider:
    return local_provider(tmp_path / "state")


@needs_root
async def test_a_right_patch_is_solved(provider: LocalProvider) -> None:
    verdict = await eval_cmd().grade(calc_task(), FIX, provider)
    assert (verdict.status, verdict.reward, verdict.tests_passed) == (VerdictStatus.SOLVED, 1.0, 1)
    assert verdict.seconds > 0


@needs_root
async def test_a_wrong_patch_fails_with_what_the_tests_printed(provider: LocalProvider) -> None:
    verdict = await eval_cmd().grade(calc_task(), FIX.replace(b"a - b", b"a * b"), provider)
    assert (verdict.status, verdict.reward, verdict.tests_failed) == (VerdictStatus.FAILED, 0.0, 1)
    assert "AssertionError" in verdict.log


async def test_a_patch_that_was_cut_at_the_captures_bound_is_not_judged() -> None:
    nobody = LosingProvider(None, 0)
    verdict = await eval_cmd().grade(calc_task(), FIX + b"x" * MOST_BYTES, nobody)
    assert (verdict.status, verdict.reward, nobody.boots) == (VerdictStatus.APPLY_FAILED, 0.0, 0)
    assert str(MOST_BYTES) in verdict.log


async def test_patches_are_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = []
    monkeypatch.setattr(
        "rl_agent.graders.judge.screen",
        lambda *_, **__: readers.append(get_ident()) or Screened(patch=b"", sections=()),
    )
    monkeypatch.setattr("rl_agent.graders.judge.find_signals", lambda _: readers.append(get_ident()) or {})
    await eval_cmd().grade(calc_task(), FIX, LosingProvider(None, 0))
    assert len(readers) == 2
    assert get_ident() not in readers


async def test_an_empty_patch_boots_no_sandbox() -> None:
    nobody = LosingProvider(None, 0)
    verdict = await eval_cmd().grade(calc_task(), b"", nobody)
    assert (verdict.status, verdict.reward, nobody.boots) == (VerdictStatus.EMPTY_DIFF, 0.0, 0)


async def test_a_patch_that_reaches_outside_boots_no_sandbox() -> None:
    nobody = LosingProvider(None, 0)
    verdict = await eval_cmd().grade(calc_task(), FIX.replace(b"b/calc.py", b"b/../calc.py"), nobody)
    assert (verdict.status, verdict.reward, nobody.boots) == (VerdictStatus.TAMPERED, 0.0, 0)


@needs_root
@pytest.mark.parametrize(
    "patch", [FIX.replace(b"a + b", b"a / b"), b"no patch at all\n", FIX[:-20], FIX.replace(b"calc.py", b"no.py")]
)
async def test_a_patch_that_does_not_apply_exactly_is_apply_failed(provider: LocalProvider, patch: bytes) -> None:
    verdict = await eval_cmd().grade(calc_task(), patch, provider)
    assert (verdict.status, verdict.reward) == (VerdictStatus.APPLY_FAILED, 0.0)
    assert verdict.log


@needs_root
async def test_a_test_that_never_ends_is_a_timeout_with_reward_zero(provider: LocalProvider) -> None:
    task = calc_task(grader=EvalCmdSpec(eval_cmd="echo begun; sleep 100"))
    verdict = await eval_cmd(timeout_s=1).grade(task, FIX, provider)
    assert (verdict.status, verdict.reward) == (VerdictStatus.TIMEOUT, 0.0)
    assert "begun" in verdict.log


@needs_root
async def test_a_lost_sandbox_is_replaced(provider: LocalProvider) -> None:
    losing = LosingProvider(provider, 1)
    assert (await eval_cmd(retries=1, mixed_runs=False).grade(calc_task(), FIX, losing)).status is VerdictStatus.SOLVED
    assert losing.boots == 2


async def test_sandboxes_that_stay_lost_are_an_infra_error_without_reward() -> None:
    losing = LosingProvider(None, 9)
    verdict = await eval_cmd(retries=2).grade(calc_task(), FIX, losing)
    assert (verdict.status, verdict.reward, losing.boots) == (VerdictStatus.INFRA_ERROR, None, 3)
    assert verdict.log == "lost it"


@needs_root
async def test_a_task_that_cannot_be_set_up_is_an_infra_error_without_reward(provider: LocalProvider) -> None:
    verdict = await eval_cmd().grade(calc_task(pre_commands=("exit 4",)), FIX, provider)
    assert (verdict.status, verdict.reward) == (VerdictStatus.INFRA_ERROR, None)
    assert "exit 4" in verdict.log


@needs_root
async def test_an_image_that_does_not_exist_is_the_tasks_fault_and_ends_no_run(provider: LocalProvider) -> None:
    verdict = await eval_cmd(retries=3).grade(calc_task(image="no-such-image"), FIX, provider)
    assert (verdict.status, verdict.reward, verdict.metadata) == ("infra_error", None, {"setup_failed": True})
    assert "no-such-image" in verdict.log


@needs_root
async def test_hidden_files_replace_whatever_the_patch_put_in_their_place(provider: LocalProvider) -> None:
    forged = (
        b"diff --git a/hidden_test.py b/hidden_test.py\nnew file mode 100644\n--- /dev/null\n+++ b/hidden_test.py\n"
    )
    forged += b"@@ -0,0 +1 @@\n+print('forged')\n"
    link = b"diff --git a/hidden_test.py b/hidden_test.py\nnew file mode 120000\n--- /dev/null\n+++ b/hidden_test.py\n"
    link += b"@@ -0,0 +1 @@\n+calc.py\n\\ No newline at end of file\n"
    for patch in (forged, link):
        assert (await eval_cmd().grade(calc_task(), patch, provider)).status is VerdictStatus.FAILED


@needs_root
async def test_tests_run_as_the_agent_in_the_work_tree_without_network_and_patched_files_are_the_agents(
    provider: LocalProvider,
) -> None:
    command = 'test "$(id -un)" = agent && test "$(pwd)" = /workspace/repo && test "$PYTHONDONTWRITEBYTECODE" = 1'
    command += " && ! ls /var/lib/rl_agent 2>/dev/null && test -O calc.py && test -O new/file && echo > new/other"
    command += " && test $(ls /sys/class/net 2>/dev/null | wc -l) -lt 2"
    new = b"diff --git a/new/file b/new/file\nnew file mode 100755\n--- /dev/null\n+++ b/new/file\n@@ -0,0 +1 @@\n+1\n"
    task = calc_task(grader=EvalCmdSpec(eval_cmd=command))
    verdict = await eval_cmd().grade(task, FIX + new, provider)
    assert verdict.status is VerdictStatus.SOLVED, verdict.log


@needs_root
async def test_the_log_is_capped(provider: LocalProvider) -> None:
    task = calc_task(grader=EvalCmdSpec(eval_cmd="echo first; seq 100000; echo last; exit 1"))
    verdict = await eval_cmd(max_log_bytes=1000).grade(task, FIX, provider)
    assert verdict.log.startswith("first")
    assert verdict.log.endswith("last")
    assert len(verdict.log) < 1200


@needs_root
async def test_pre_commands_run_before_the_patch(provider: LocalProvider) -> None:
    task = calc_task(pre_commands=("sed -i s/total/sum2/ calc.py",))
    assert (await eval_cmd().grade(task, FIX, provider)).status is VerdictStatus.APPLY_FAILED


@needs_root
@pytest.mark.parametrize(
    "spec",
    [
        EvalCmdSpec(eval_cmd="python3 -c 'import helper, calc; assert calc.total(3, 1) == helper.TWO'"),
        F2pSpec(script="import helper, calc\nassert calc.total(3, 1) == helper.TWO\n"),
    ],
    ids=["eval_cmd", "f2p"],
)
async def test_what_pre_commands_install_for_the_user_is_there_in_grading_as_for_the_agent(
    provider: LocalProvider, spec: EvalCmdSpec | F2pSpec
) -> None:
    install = 'site=$(python3 -m site --user-site); mkdir -p "$site"; echo TWO=2 > "$site/helper.py"'
    grader = AutoConfig().build()
    verdict = await grader.grade(calc_task(pre_commands=(install,), grader=spec), FIX, provider)
    assert (verdict.status, verdict.reward) == (VerdictStatus.SOLVED, 1.0), verdict.log


@needs_root
async def test_pre_commands_share_a_shell_and_any_line_that_fails_is_a_set_up_error(provider: LocalProvider) -> None:
    task = calc_task(pre_commands=("cd /tmp; export WHERE=$PWD", 'test "$PWD:$WHERE" = /tmp:/tmp'))
    assert (await eval_cmd().grade(task, FIX, provider)).status is VerdictStatus.SOLVED
    verdict = await eval_cmd().grade(calc_task(pre_commands=("echo begun\nfalse\ntrue",)), FIX, provider)
    assert (verdict.status, verdict.reward) == (VerdictStatus.INFRA_ERROR, None)
    assert "begun" in verdict.log


@needs_root
async def test_fallbacks_record_which_one_applied_and_start_from_the_pristine_tree(provider: LocalProvider) -> None:
    solved = await eval_cmd(apply_fallbacks=[Rung.three_way]).grade(calc_task(), FIX, provider)
    assert (solved.status, solved.metadata["applied"]) == (VerdictStatus.SOLVED, "strict")
    wrong = FIX.replace(b"a + b", b"a / b")
    assert (
        await eval_cmd(apply_fallbacks=[Rung.three_way]).grade(calc_task(), wrong, provider)
    ).status is VerdictStatus.APPLY_FAILED


@needs_root
async def test_a_fallback_that_half_succeeds_leaves_nothing_to_the_next(provider: LocalProvider) -> None:
    lines = [f"x{number} = {number}\n" for number in range(20)]
    changed = [*lines[:10], "x10 = 0\n", *lines[11:]]
    first = b"diff --git a/new.py b/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+y = 1\n"
    moved = (
        b"diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -9,5 +9,5 @@\n x8 = 8\n x9 = 9\n-x10 = 10\n+x10 = 0\n"
        b" x11 = 11\n unknown = 0\n"
    )
    check = (
        f'test "$(cat calc.py)" = \'{"".join(changed).rstrip()}\' && test -z "$(ls | grep -v calc.py | grep -v new.py)"'
    )
    task = calc_task(files={"calc.py": "".join(lines)}, grader=EvalCmdSpec(eval_cmd=check))
    strict = await eval_cmd().grade(task, first + moved, provider)
    assert strict.status is VerdictStatus.APPLY_FAILED
    fuzzy = await eval_cmd(apply_fallbacks=[Rung.three_way, Rung.fuzz]).grade(task, first + moved, provider)
    assert (fuzzy.status, fuzzy.metadata["applied"]) == (VerdictStatus.SOLVED, "fuzz"), fuzzy.log


@needs_root
async def test_nothing_is_tried_when_asked_to(provider: LocalProvider) -> None:
    verdict = await eval_cmd().grade(calc_task(), b"", provider, even_empty=True)
    assert verdict.status is VerdictStatus.FAILED


async def test_a_grader_refuses_a_specification_that_it_does_not_know() -> None:
    with pytest.raises(GraderError, match="grader=auto"):
        await eval_cmd().grade(calc_task(grader=F2pSpec(fail_to_pass=("t",))), FIX, LosingProvider(None, 0))


async def test_a_patch_of_configuration_alone_is_empty_and_costs_no_penalty() -> None:
    hook = b"diff --git a/conftest.py b/conftest.py\nnew file mode 100644\n--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+x\n"
    verdict = await eval_cmd(penalty=0.25).grade(calc_task(), hook, LosingProvider(None, 0))
    assert (verdict.status, verdict.reward) == (VerdictStatus.EMPTY_DIFF, 0.0)
    assert verdict.metadata["signals"] == {"protected_path": ["conftest.py"]}
    assert list(verdict.metadata["dropped_paths"]) == ["conftest.py"]


async def test_tampering_costs_the_penalty() -> None:
    outside = FIX.replace(b"b/calc.py", b"b/../calc.py")
    verdict = await eval_cmd(penalty=0.25).grade(calc_task(), outside, LosingProvider(None, 0))
    assert (verdict.status, verdict.reward) == (VerdictStatus.TAMPERED, -0.25)
