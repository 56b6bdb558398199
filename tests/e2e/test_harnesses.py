"""The real CLIs, in the real sandbox, against a scripted server; the shared leak fixture watches what they leave."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from rl_agent.errors import HarnessError
from rl_agent.graders.base import VerdictStatus
from rl_agent.harnesses.base import Budget, ExitReason, Harness, HarnessResult
from rl_agent.harnesses.claude_code import ClaudeCodeConfig
from rl_agent.harnesses.codex import CodexConfig
from rl_agent.sandboxes.base import Asset
from rl_agent.workspace.capture import capture
from rl_agent.workspace.workspace import prepare
from tests.e2e.stub_server import Stub, serve
from tests.local import calc_task, eval_cmd, local_provider, needs_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rl_agent.sandboxes.base import Sandbox
    from rl_agent.sandboxes.local.provider import LocalProvider

pytestmark = [needs_root, pytest.mark.e2e]
TASK = calc_task()
FIX = "sed -i '2s|.*|    return a - b|' calc.py"
TOKEN = "the-secret-of-the-session"
NAMES = ("claude_code", "codex")
LIST_AGENTS = "for s in $(grep -lE '^Uid:.[1-9]' /proc/[0-9]*/status); do grep -E '^(Name|State|PPid)' $s; done"
"""Processes of users, zombies too: what each is, so that one that is left can be found."""


def harness(name: str, **changes: Any) -> Harness:
    if name == "claude_code":
        built: Harness = ClaudeCodeConfig(**{"tools": ["Bash"], "system_prompt": "You fix bugs.", **changes}).build()
    else:
        built = CodexConfig(**{"tools": ["exec_command"], "system_prompt": "You fix bugs.", **changes}).build()
    return built


@pytest.fixture
def provider(tmp_path: Path) -> LocalProvider:
    return local_provider(tmp_path / "state")


@asynccontextmanager
async def workspace(provider: LocalProvider, cli: Harness) -> AsyncIterator[tuple[Sandbox, Any]]:
    async with provider.boot("host", assets=cli.find_assets(), lifetime_s=120) as sandbox:
        prepared = await prepare(sandbox, TASK, timeout_s=60)
        await cli.install(sandbox)
        yield sandbox, prepared


async def run(cli: Harness, sandbox: Sandbox, stub: Stub, *, time_s: float = 60, session: str = "abc") -> HarnessResult:
    url = await sandbox.expose(stub.port)
    return await cli.run(sandbox, task=TASK, base_url=f"{url}/s/{session}", token=TOKEN, budget=Budget(time_s=time_s))


@pytest.mark.parametrize("name", NAMES)
async def test_an_agent_run_from_prompt_to_verdict(provider: LocalProvider, name: str) -> None:
    cli = harness(name)
    async with serve(Stub([FIX])) as stub, workspace(provider, cli) as (sandbox, prepared):
        result = await run(cli, sandbox, stub)
        patch = await capture(sandbox, prepared)
    assert (result.exit_code, result.reason) == (0, ExitReason.FINISHED), result.stderr_tail
    assert all(json.loads(line) for line in result.transcript.splitlines())
    assert 0 < result.seconds < 60
    assert len(stub.requests) == 2
    first, second = (json.dumps(request["body"]) for request in stub.requests)
    assert TASK.problem_statement in first
    assert "You fix bugs." in first
    assert FIX in second.replace("\\\\", "\\")
    assert TOKEN in json.dumps(stub.requests[0]["headers"])
    assert {request["path"] for request in stub.requests} <= {"/s/abc/v1/messages", "/s/abc/v1/responses"}
    assert (await eval_cmd().grade(TASK, patch, provider)).status is VerdictStatus.SOLVED


@pytest.mark.parametrize(
    ("name", "changes", "tools"),
    [
        ("claude_code", {}, ["Bash"]),
        ("claude_code", {"tools": ["Bash", "Edit", "Read"]}, ["Bash", "Edit", "Read"]),
        ("codex", {}, ["exec_command", "write_stdin"]),
        ("codex", {"tools": ["exec_command", "apply_patch"]}, ["exec_command", "write_stdin", "apply_patch"]),
    ],
)
async def test_the_policy_is_offered_exactly_the_configured_tools(
    provider: LocalProvider, name: str, changes: dict[str, Any], tools: list[str]
) -> None:
    cli = harness(name, **changes)
    async with serve(Stub([])) as stub, workspace(provider, cli) as (sandbox, _):
        result = await run(cli, sandbox, stub)
    assert result.reason is ExitReason.FINISHED, result.stderr_tail
    assert [tool["name"] for tool in stub.requests[0]["body"]["tools"]] == tools


@pytest.mark.parametrize("name", NAMES)
async def test_the_prompt_is_short_and_names_nothing_that_differs_between_rollouts(
    provider: LocalProvider, name: str
) -> None:
    seen = []
    for session in ("one", "two"):
        cli = harness(name)
        async with serve(Stub([])) as stub, workspace(provider, cli) as (sandbox, _):
            await run(cli, sandbox, stub, session=session)
        body = stub.requests[0]["body"]
        keys = ("system", "tools", "messages") if name == "claude_code" else ("tools", "input")
        parts = [body[key] for key in keys]
        for item in body.get("input", []):
            item.pop("id", None)
        seen.append(json.dumps(parts))
    assert seen[0] == seen[1]
    assert len(seen[0]) < 6000


@pytest.mark.parametrize("name", NAMES)
async def test_a_server_that_never_answers_costs_the_time_budget_and_leaves_no_process(
    provider: LocalProvider, name: str
) -> None:
    cli = harness(name)
    async with serve(Stub([], silent=True)) as stub, workspace(provider, cli) as (sandbox, prepared):
        started = time.monotonic()
        result = await run(cli, sandbox, stub, time_s=4)
        assert time.monotonic() - started < 20
        assert (result.exit_code, result.reason) == (-1, ExitReason.TIME_BUDGET)
        left = await sandbox.exec(LIST_AGENTS, user="root", timeout=20)
        assert left.stdout == b""
        assert await capture(sandbox, prepared) == b""


@pytest.mark.parametrize("name", NAMES)
async def test_a_command_that_hangs_costs_the_time_budget_and_its_work_is_kept(
    provider: LocalProvider, name: str
) -> None:
    cli = harness(name, time_budget_s=6.0)
    async with serve(Stub([FIX + "; sleep 1000"])) as stub, workspace(provider, cli) as (sandbox, prepared):
        result = await run(cli, sandbox, stub)
        assert result.reason is ExitReason.TIME_BUDGET
        assert b"return a - b" in await capture(sandbox, prepared)


@pytest.mark.parametrize("name", NAMES)
async def test_a_refused_session_is_a_cli_error_at_once(provider: LocalProvider, name: str) -> None:
    cli = harness(name)
    async with serve(Stub([], status=400)) as stub, workspace(provider, cli) as (sandbox, _):
        result = await run(cli, sandbox, stub)
    assert (result.exit_code, result.reason) == (1, ExitReason.CLI_ERROR)


class Breaking(Stub):
    """Answers once; then every connection breaks, or something in between answers for it."""

    def __init__(self, after: int | None) -> None:
        super().__init__(["true"])
        self.after = after

    async def handle(self, request: web.Request) -> web.Response:
        if not self.requests or request.method != "POST":
            return await super().handle(request)
        if self.after is None and request.transport is not None:
            request.transport.abort()
        return web.Response(status=self.after or 200, text="<html>Bad Gateway</html>")


@pytest.mark.parametrize("after", [None, 502])
@pytest.mark.parametrize("name", NAMES)
async def test_a_lost_connection_is_told_from_other_ends(provider: LocalProvider, name: str, after: int | None) -> None:
    cli = harness(name)
    async with serve(Breaking(after)) as stub, workspace(provider, cli) as (sandbox, _):
        result = await run(cli, sandbox, stub)
    assert (result.exit_code, result.reason) == (1, ExitReason.API_ERROR), result.transcript[-500:]


async def test_claude_codes_investigator_reads_and_changes_nothing_and_no_other_agent_is_there(
    provider: LocalProvider,
) -> None:
    cli = harness("claude_code", tools=["Bash", "Edit", "Read"], bare=False, investigator=True)
    look = {"description": "look", "prompt": "What does calc.py hold?"}
    edit = {"file_path": "/workspace/repo/calc.py", "old_string": "a + b", "new_string": "a - b"}
    read = {"file_path": "/workspace/repo/calc.py"}
    script = [
        ("Agent", {**look, "subagent_type": "general-purpose"}),
        ("Agent", {**look, "subagent_type": "fork"}),
        ("Agent", {**look, "subagent_type": "investigator"}),
        *(("Edit", edit), ("Bash", {"command": FIX}), ("Read", read), None),
    ]
    async with serve(Stub(script)) as stub, workspace(provider, cli) as (sandbox, prepared):
        result = await run(cli, sandbox, stub)
        assert await capture(sandbox, prepared) == b""
    assert result.reason is ExitReason.FINISHED, result.stderr_tail
    main = ["Agent", "Bash", "Edit", "Read"]
    offered = [[tool["name"] for tool in request["body"]["tools"]] for request in stub.requests]
    assert offered == [main] * 3 + [["Read", "Grep", "Glob"]] * 4 + [main]
    answers = [json.dumps(request["body"]["messages"][-1]) for request in stub.requests]
    assert all("denied by permission rule" in answer for answer in answers[1:3])
    assert all("No such tool available" in answer for answer in answers[4:6])
    assert "return a + b" in answers[6]
    assert "- investigator: Reads and searches" in json.dumps(stub.requests[0]["body"])
    assert "- Explore" not in json.dumps(stub.requests[0]["body"])


@pytest.mark.parametrize("name", NAMES)
async def test_the_prompt_template_and_extra_flags_reach_the_real_cli(provider: LocalProvider, name: str) -> None:
    flags = {"claude_code": ["--append-system-prompt", "Be quick."], "codex": ["-c", 'model_reasoning_effort="high"']}
    cli = harness(name, prompt="Task {task_id} in {workdir}: {problem_statement}", extra_args=flags[name])
    async with serve(Stub([])) as stub, workspace(provider, cli) as (sandbox, _):
        result = await run(cli, sandbox, stub)
    assert result.reason is ExitReason.FINISHED, result.stderr_tail
    body = json.dumps(stub.requests[0]["body"])
    assert f"Task calc in /workspace/repo: {TASK.problem_statement}" in body
    assert ("Be quick." if name == "claude_code" else '"effort": "high"') in body


async def test_claude_codes_own_turn_limit_is_told_apart(provider: LocalProvider) -> None:
    cli = harness("claude_code", max_turns=2)
    async with serve(Stub(["true"] * 9)) as stub, workspace(provider, cli) as (sandbox, _):
        result = await run(cli, sandbox, stub)
    assert (result.exit_code, result.reason, len(stub.requests)) == (1, ExitReason.TURN_LIMIT, 2)


async def test_claude_codes_shell_timeout_is_the_configured_one(provider: LocalProvider) -> None:
    cli = harness("claude_code", bash_timeout_s=1.0)
    async with serve(Stub(["sleep 30"])) as stub, workspace(provider, cli) as (sandbox, _):
        result = await run(cli, sandbox, stub)
    assert result.seconds < 25
    assert "timed out after 1s" in json.dumps(stub.requests[1]["body"])


@pytest.mark.parametrize("name", NAMES)
async def test_a_cancelled_run_leaves_no_process(provider: LocalProvider, name: str) -> None:
    cli = harness(name)
    async with serve(Stub([], silent=True)) as stub, workspace(provider, cli) as (sandbox, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await run(cli, sandbox, stub)
        left = await sandbox.exec(LIST_AGENTS, user="root", timeout=20)
        assert left.stdout == b""


@pytest.mark.parametrize("name", NAMES)
async def test_a_program_that_cannot_run_is_a_harness_error(provider: LocalProvider, name: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    cli = harness(name, binary=str(broken))
    assert [type(asset) for asset in cli.find_assets()] == [Asset]
    async with serve(Stub([])) as stub, workspace(provider, cli) as (sandbox, _):
        with pytest.raises(HarnessError, match="could not be started"):
            await run(cli, sandbox, stub)


@pytest.mark.slow
async def test_eight_agents_at_once(provider: LocalProvider) -> None:
    async def one(name: str, session: str, stub: Stub) -> HarnessResult:
        cli = harness(name)
        async with workspace(provider, cli) as (sandbox, _):
            return await run(cli, sandbox, stub, session=session, time_s=100)

    async with serve(Stub([FIX])) as stub:
        results = await asyncio.gather(*[one(NAMES[n % 2], f"s{n}", stub) for n in range(8)])
    assert [result.reason for result in results] == [ExitReason.FINISHED] * 8
    assert len(stub.requests) == 16
