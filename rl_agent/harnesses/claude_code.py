"""Claude Code, headless: its flags, environment and exit reasons.

It connects only to `base_url`: no login, no DNS, no other connection. With these settings its history is prefix-stable.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from rl_agent.config.harness import HarnessConfig
from rl_agent.config.plug_in import Problem
from rl_agent.errors import ConfigError
from rl_agent.harnesses.base import ExitReason
from rl_agent.harnesses.cli_files import CLAUDE_CODE, program_assets
from rl_agent.harnesses.run import check_prompt, check_tools, prompt, result_of, run_cli

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rl_agent.config.schema import Config
    from rl_agent.harnesses.base import Budget, HarnessResult
    from rl_agent.sandboxes.base import Asset, Sandbox
    from rl_agent.tasks.task import Task

BARE_TOOLS: Final = ("Bash", "Edit", "Read")
INVESTIGATOR: Final = {
    "investigator": {
        "description": "Reads and searches the repository to answer a question. It cannot change anything.",
        "prompt": "You investigate a repository: read and search it to answer the question you are given. You cannot change "
        "anything. Answer briefly, with paths and line numbers.",
        "tools": ["Read", "Grep", "Glob"],
    }
}
OTHER_AGENTS: Final = ("claude", "Explore", "general-purpose", "Plan", "statusline-setup", "fork")
"""The CLI's own sub-agents. Most of them can do everything that the main agent can."""
SESSION_ID: Final = "00000000-0000-4000-8000-000000000001"
"""Fixed, because it appears in the paths of long outputs: a random id would make equal rollouts differ."""
PATIENCE_MS: Final = 1_800_000
"""Longest silence of the API that the CLI can be configured to accept: half an hour."""
FIXED_ENVIRONMENT: Final = {
    "IS_SANDBOX": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
    "CLAUDE_CODE_DISABLE_THINKING": "1",  # the policy's template controls thinking, not the CLI's request
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
    "CLAUDE_CODE_MAX_RETRIES": "2",
    "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": str(PATIENCE_MS),
    "API_TIMEOUT_MS": str(PATIENCE_MS),
    "DISABLE_PROMPT_CACHING": "1",
    "ENABLE_TOOL_SEARCH": "false",  # tool search would insert tools into the middle of the prefix
}


@dataclass(kw_only=True)
class ClaudeCodeConfig(HarnessConfig):
    """Claude Code, headless."""

    dialect: ClassVar[str] = "rl_agent.adapters.anthropic_messages.AnthropicMessages"
    bare: bool = True
    """Claude Code's --bare: no reminders, no CLAUDE.md, short prompts, and only the tools Bash, Edit and Read."""
    max_output_tokens: int = 8192
    """Maximum tokens per reply that the CLI requests. The sampling config can only lower it."""

    @override
    def build(self) -> ClaudeCode:
        return ClaudeCode(self)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        if self.investigator and self.bare:
            yield Problem("harness.investigator", "Claude Code's --bare has no sub-agents.", "Set harness.bare=false.")


class ClaudeCode:
    """Harness for Claude Code. See `Harness`."""

    def __init__(self, config: ClaudeCodeConfig) -> None:
        check_prompt(config.prompt)
        if config.bare:
            check_tools(config.tools, BARE_TOOLS, "Claude Code with harness.bare=true does not support")
        if config.investigator and config.bare:
            raise ConfigError("harness.investigator: Claude Code's --bare has no sub-agents. Set harness.bare=false.")
        if config.investigator and "Read" not in config.tools:
            raise ConfigError(
                "harness.investigator: needs Read, which the main agent lacks. Add Read to harness.tools."
            )
        self._config = config
        self._arguments = [
            *(["--bare"] if config.bare else []),
            *(["--system-prompt", config.system_prompt] if config.system_prompt is not None else []),
            *(
                "--tools",
                ",".join([*config.tools, "Agent"] if config.investigator else config.tools),
                "--output-format",
                "stream-json",
                "--verbose",
            ),
            *(_investigator() if config.investigator else ()),
            *("--dangerously-skip-permissions", "--session-id", SESSION_ID),
            *(["--max-turns", str(config.max_turns)] if config.max_turns is not None else []),
            *config.extra_args,
        ]
        bash_ms = str(round(config.bash_timeout_s * 1000))
        compact = {"DISABLE_AUTO_COMPACT": "1"}
        if config.compaction is not None:
            percent = max(1, round(100 * config.compaction / config.max_context_tokens))
            compact = {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": str(percent)}
        self._environment = {
            **FIXED_ENVIRONMENT,
            **dict.fromkeys(
                ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"), config.model_name
            ),
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(config.max_context_tokens),
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(config.max_output_tokens),
            "BASH_DEFAULT_TIMEOUT_MS": bash_ms,
            "BASH_MAX_TIMEOUT_MS": bash_ms,
            **compact,
            **config.extra_env,
        }

    def find_assets(self) -> Sequence[Asset]:
        """See `Harness.find_assets`."""
        return program_assets(CLAUDE_CODE, self._config)

    async def install(self, sandbox: Sandbox) -> None:
        """Do nothing: the flags and the environment are the whole configuration."""

    async def run(self, sandbox: Sandbox, *, task: Task, base_url: str, token: str, budget: Budget) -> HarnessResult:
        """See `Harness.run`."""
        words = [CLAUDE_CODE.target, "-p", prompt(self._config.prompt, task), *self._arguments]
        environment = {**self._environment, "ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": token}
        result, last = await run_cli(
            sandbox,
            f"exec {shlex.join(words)} </dev/null",
            name="Claude Code",
            task=task,
            env=environment,
            time_s=min(self._config.time_budget_s, budget.time_s),
        )
        return result_of(result, _reason(result.exit_code, last, timed_out=result.timed_out))


def _investigator() -> list[str]:
    denied = ",".join(f"Agent({name})" for name in OTHER_AGENTS)
    return ["--agents", json.dumps(INVESTIGATOR), "--disallowedTools", denied]


def _reason(exit_code: int, last: Mapping[str, object], *, timed_out: bool) -> ExitReason:
    if timed_out:
        return ExitReason.TIME_BUDGET
    if exit_code == 0:
        return ExitReason.FINISHED
    if last.get("terminal_reason") == "max_turns" or last.get("subtype") == "error_max_turns":
        return ExitReason.TURN_LIMIT
    status = last.get("api_error_status")  # None: no response; below 500: a refusal
    if exit_code == 1 and last.get("terminal_reason") == "api_error" and not (isinstance(status, int) and status < 500):
        return ExitReason.API_ERROR
    return ExitReason.CLI_ERROR
