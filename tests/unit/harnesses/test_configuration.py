"""What the harnesses make of their configuration, without a CLI."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from rl_agent.errors import ConfigError, HarnessError
from rl_agent.harnesses.base import Budget, ExitReason, Harness
from rl_agent.harnesses.claude_code import ClaudeCodeConfig
from rl_agent.harnesses.codex import CodexConfig
from rl_agent.harnesses.run import last_line
from rl_agent.sandboxes.base import ExecResult
from tests.local import calc_task


class Recorder:
    """A sandbox that answers every command with one result."""

    id = "recorder"

    def __init__(self, result: ExecResult) -> None:
        self.result = result
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def exec(self, cmd: str, **options: Any) -> ExecResult:
        self.calls.append((cmd, options))
        return self.result


def failed(message: str) -> dict[str, Any]:
    """Codex's last line."""
    return {"type": "turn.failed", "error": {"message": message}}


def ended(code: int, last: dict[str, Any] | None = None, *, timed_out: bool = False) -> ExecResult:
    line = b"" if last is None else json.dumps(last).encode() + b"\n"
    return ExecResult(exit_code=code, stdout=b'{"type":"x"}\n' + line, stderr=b"", timed_out=timed_out)


async def run(config: Any, result: ExecResult, **task: Any) -> tuple[Any, Recorder]:
    harness: Harness = config.build()
    sandbox: Any = Recorder(result)
    await harness.install(sandbox)
    budget = Budget(time_s=77)
    answer = await harness.run(sandbox, task=calc_task(**task), base_url="http://h:1/s/x", token="tok", budget=budget)
    return answer, sandbox


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ended(0, {"type": "result", "subtype": "success"}), ExitReason.FINISHED),
        (ended(1, {"type": "result", "subtype": "error_max_turns"}), ExitReason.TURN_LIMIT),
        (ended(1, {"type": "result", "terminal_reason": "max_turns"}), ExitReason.TURN_LIMIT),
        (ended(1, {"type": "result", "subtype": "success", "terminal_reason": "api_error"}), ExitReason.API_ERROR),
        (ended(1, {"terminal_reason": "api_error", "api_error_status": None}), ExitReason.API_ERROR),
        (ended(1, {"terminal_reason": "api_error", "api_error_status": 502}), ExitReason.API_ERROR),
        (ended(1, {"terminal_reason": "api_error", "api_error_status": 400}), ExitReason.CLI_ERROR),
        (ended(137, {"terminal_reason": "api_error"}), ExitReason.CLI_ERROR),
        (ended(143), ExitReason.CLI_ERROR),
        (ended(-1, timed_out=True), ExitReason.TIME_BUDGET),
    ],
)
async def test_how_claude_code_ended(result: ExecResult, reason: ExitReason) -> None:
    assert (await run(ClaudeCodeConfig(), result))[0].reason is reason


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ended(0, {"type": "turn.completed"}), ExitReason.FINISHED),
        (ended(1, {"type": "turn.failed"}), ExitReason.CLI_ERROR),
        (ended(1, failed("stream disconnected before completion: error sending request")), ExitReason.API_ERROR),
        (ended(1, failed("Connection failed: error sending request")), ExitReason.API_ERROR),
        (ended(1, failed("unexpected status 502 Bad Gateway: x, url: http://h")), ExitReason.API_ERROR),
        (ended(1, failed("unexpected status 401 Unauthorized: x, url: http://h")), ExitReason.CLI_ERROR),
        (ended(1, failed("Codex ran out of room in the model's context window")), ExitReason.CLI_ERROR),
        (ended(137, failed("stream disconnected")), ExitReason.CLI_ERROR),
        (ended(1, {"type": "turn.failed", "error": ["stream disconnected"]}), ExitReason.CLI_ERROR),
        (ended(-1, timed_out=True), ExitReason.TIME_BUDGET),
    ],
)
async def test_how_codex_ended(result: ExecResult, reason: ExitReason) -> None:
    assert (await run(CodexConfig(), result))[0].reason is reason


@pytest.mark.parametrize("config", [ClaudeCodeConfig, CodexConfig])
async def test_the_shorter_of_budget_and_configuration_holds(config: Any) -> None:
    _, sandbox = await run(config(time_budget_s=5.0), ended(0))
    assert sandbox.calls[-1][1]["timeout"] == 5.0
    _, sandbox = await run(config(time_budget_s=500.0), ended(0))
    assert sandbox.calls[-1][1]["timeout"] == 77


@pytest.mark.parametrize("config", [ClaudeCodeConfig, CodexConfig])
async def test_prompts_survive_the_shell_and_stdin_is_closed(config: Any) -> None:
    nasty = "say '$(touch x)' \"`id`\" {braces} \\ and\nmore"
    _, sandbox = await run(config(prompt="{task_id}: {problem_statement}"), ended(0), problem_statement=nasty)
    command = sandbox.calls[-1][0]
    quoted = nasty.replace("'", "'\"'\"'")
    assert f"'calc: {quoted}'" in command
    assert command.endswith("</dev/null")


@pytest.mark.parametrize("config", [ClaudeCodeConfig, CodexConfig])
async def test_wrong_prompts_and_tools_are_refused_before_anything_runs(config: Any) -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        config(prompt="{nonsense}").build()
    with pytest.raises(ConfigError, match="invalid template"):
        config(prompt="{").build()
    with pytest.raises(ConfigError, match="WebSearch"):
        config(tools=["WebSearch"]).build()
    with pytest.raises(HarnessError, match="bytes"):
        await run(config(), ended(0), problem_statement="x" * 200_000)


@pytest.mark.parametrize("config", [ClaudeCodeConfig, CodexConfig])
async def test_extra_arguments_and_environment_reach_the_cli(config: Any) -> None:
    _, sandbox = await run(config(extra_args=["--flag", "a b"], extra_env={"MORE": "yes"}), ended(0))
    command, options = sandbox.calls[-1]
    assert "--flag 'a b'" in command
    assert options["env"]["MORE"] == "yes"


def test_codex_has_no_limit_on_turns_to_set() -> None:
    with pytest.raises(ConfigError, match=r"harness\.max_turns.*rollout\.max_turns"):
        CodexConfig(max_turns=3).build()


async def test_an_investigator_needs_a_cli_that_can_hold_it_to_reading() -> None:
    with pytest.raises(ConfigError, match="bare=false"):
        ClaudeCodeConfig(investigator=True).build()
    with pytest.raises(ConfigError, match="needs Read"):
        ClaudeCodeConfig(investigator=True, bare=False).build()
    with pytest.raises(ConfigError, match="none is read-only"):
        CodexConfig(investigator=True).build()
    _, sandbox = await run(ClaudeCodeConfig(investigator=True, bare=False, tools=["Bash", "Read"]), ended(0))
    assert "--tools Bash,Read,Agent" in sandbox.calls[-1][0]
    _, sandbox = await run(ClaudeCodeConfig(bare=False, tools=["Bash"]), ended(0))
    assert "Agent" not in sandbox.calls[-1][0]


async def test_claude_code_compacts_only_where_it_is_told() -> None:
    _, sandbox = await run(ClaudeCodeConfig(), ended(0))
    assert sandbox.calls[-1][1]["env"]["DISABLE_AUTO_COMPACT"] == "1"
    _, sandbox = await run(ClaudeCodeConfig(compaction=30_000, max_context_tokens=60_000), ended(0))
    assert "DISABLE_AUTO_COMPACT" not in sandbox.calls[-1][1]["env"]
    assert sandbox.calls[-1][1]["env"]["CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"] == "50"


@pytest.mark.parametrize(("compaction", "window"), [(None, 100_000_000), (30_000, 60_000)])
async def test_codex_reads_a_valid_configuration(compaction: int | None, window: int) -> None:
    config = CodexConfig(
        system_prompt='Say "hi"\nnow',
        model_name='m"x',
        compaction=compaction,
        max_context_tokens=60_000,
        tools=["exec_command"],
    )
    _, sandbox = await run(config, ended(0))
    files = sandbox.calls[0][1]["env"]
    settings, catalog = tomllib.loads(files["CODEX_CONFIG"]), json.loads(files["CODEX_CATALOG"])
    model = catalog["models"][0]
    assert settings["model"] == model["slug"] == 'm"x'
    assert settings["model_context_window"] == model["context_window"] == window
    assert settings.get("model_auto_compact_token_limit") == compaction
    assert model["base_instructions"] == 'Say "hi"\nnow'
    assert model["apply_patch_tool_type"] is None
    assert settings["features"]["unbounded_connection_retries"] is False


@pytest.mark.parametrize(
    ("output", "value"),
    [(b"", {}), (b"x", {}), (b'{"a":1}\n[1]\n', {}), (b'x\n{"a":1}\n\n', {"a": 1}), (b"[" * 200_000, {})],
)
def test_the_last_line_is_an_object_or_nothing(output: bytes, value: dict[str, Any]) -> None:
    assert last_line(output) == value
