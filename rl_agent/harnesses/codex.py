"""Codex, headless: its config file, model catalog, flags and exit reasons.

It connects only to `base_url`: no login, no DNS, no other connection. It has no turn limit (the adapter ends a
session), and write_stdin cannot be disabled separately from exec_command.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import override

from rl_agent.config.harness import HarnessConfig
from rl_agent.config.plug_in import Problem
from rl_agent.errors import ConfigError
from rl_agent.harnesses.base import ExitReason
from rl_agent.harnesses.cli_files import CODEX, program_assets
from rl_agent.harnesses.run import check_prompt, check_tools, prompt, result_of, run_cli

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rl_agent.config.schema import Config
    from rl_agent.harnesses.base import Budget, HarnessResult
    from rl_agent.sandboxes.base import Asset, Sandbox
    from rl_agent.tasks.task import Task

TOOLS: Final = ("exec_command", "apply_patch")
HOME: Final = "$HOME/.codex"
"""CODEX_HOME. It must not be below /tmp."""
TOKEN_VARIABLE: Final = "RL_AGENT_SESSION_TOKEN"  # noqa: S105 (the variable's name)
UNBOUNDED_WINDOW: Final = 100_000_000
"""Codex always compacts at nine tenths of its window. Only an unreachable window prevents this."""
PATIENCE_MS: Final = 1_800_000
DEFAULT_SYSTEM_PROMPT: Final = "You are a coding agent."
OFF: Final = (
    *("api_key_model_discovery", "apps", "browser_use", "code_mode_host", "computer_use", "daemon_auto_start"),
    *("enable_request_compression", "fast_mode", "goals", "guardian_approval", "hooks", "image_generation"),
    *("in_app_browser", "incremental_tools", "mentions_v2", "multi_agent", "plugin_sharing", "plugins"),
    *("remote_plugin", "request_user_input", "shell_snapshot", "skill_mcp_dependency_install", "skill_search"),
    *("sleep_tool", "tool_suggest", "ultrafast_mode", "unbounded_connection_retries", "view_image"),
    "workspace_dependencies",
)
"""Features that would contact other hosts, hang at exit, or lengthen the prompt."""
INSTALL: Final = (
    f'umask 077 && mkdir -p "{HOME}" && printf %s "$CODEX_CONFIG" >"{HOME}/config.toml" '
    f'&& printf %s "$CODEX_CATALOG" >"{HOME}/catalog.json"'
)
INSTALL_TIMEOUT_S: Final = 60
API_ERRORS: Final = ("stream disconnected", "Connection failed", "unexpected status 5")
"""Prefixes of the last message of a run that lost its API connection."""


@dataclass(kw_only=True)
class CodexConfig(HarnessConfig):
    """Codex, headless. It requests no output limit; the sampling config sets one."""

    dialect: ClassVar[str] = "rl_agent.adapters.openai_responses.OpenAIResponses"

    @override
    def build(self) -> Codex:
        return Codex(self)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        if self.investigator:
            yield Problem(
                "harness.investigator",
                "Codex gives a sub-agent the tools and permissions of the main agent, so none is read-only.",
                "Set harness=claude_code harness.bare=false.",
            )


class Codex:
    """Harness for Codex. See `Harness`."""

    def __init__(self, config: CodexConfig) -> None:
        check_prompt(config.prompt)
        check_tools(config.tools, TOOLS, "Codex does not support")
        if config.investigator:
            raise ConfigError(
                "harness.investigator: Codex gives a sub-agent the tools and permissions of the main agent, so none "
                "is read-only. Set harness=claude_code harness.bare=false."
            )
        if config.max_turns is not None:
            raise ConfigError(
                "harness.max_turns: Codex has no turn limit. Set rollout.max_turns, which the adapter enforces."
            )
        self._config = config
        window = UNBOUNDED_WINDOW if config.compaction is None else config.max_context_tokens
        self._catalog = json.dumps(
            {"models": [_catalog_entry(config.model_name, config.system_prompt, config.tools, window)]}
        )
        self._toml = _config(config.model_name, window, config.compaction, round(config.bash_timeout_s * 1000))

    def find_assets(self) -> Sequence[Asset]:
        """See `Harness.find_assets`."""
        return program_assets(CODEX, self._config)

    async def install(self, sandbox: Sandbox) -> None:
        """See `Harness.install`."""
        files = {"CODEX_CONFIG": self._toml, "CODEX_CATALOG": self._catalog}
        await sandbox.exec(INSTALL, env=files, timeout=INSTALL_TIMEOUT_S, check=True)

    async def run(self, sandbox: Sandbox, *, task: Task, base_url: str, token: str, budget: Budget) -> HarnessResult:
        """See `Harness.run`."""
        words = [
            *(
                CODEX.target,
                "exec",
                "--json",
                "--ephemeral",
                "--skip-git-repo-check",
                "--dangerously-bypass-approvals-and-sandbox",
            ),
            *("-c", f"model_providers.rl.base_url={json.dumps(base_url + '/v1')}"),
            *self._config.extra_args,
        ]
        command = (
            f'export CODEX_HOME="{HOME}"; exec {shlex.join(words)} '
            f'-c "model_catalog_json=\\"$CODEX_HOME/catalog.json\\"" {shlex.quote(prompt(self._config.prompt, task))} </dev/null'
        )
        result, last = await run_cli(
            sandbox,
            command,
            name="Codex",
            task=task,
            env={**self._config.extra_env, TOKEN_VARIABLE: token},
            time_s=min(self._config.time_budget_s, budget.time_s),
        )
        return result_of(result, _reason(result.exit_code, last, timed_out=result.timed_out))


def _reason(exit_code: int, last: Mapping[str, Any], *, timed_out: bool) -> ExitReason:
    if timed_out:
        return ExitReason.TIME_BUDGET
    if exit_code == 0:
        return ExitReason.FINISHED
    error = last.get("error")
    said = str(error.get("message")) if isinstance(error, dict) else ""
    if exit_code == 1 and last.get("type") == "turn.failed" and said.startswith(API_ERRORS):
        return ExitReason.API_ERROR
    return ExitReason.CLI_ERROR


def _catalog_entry(model_name: str, system_prompt: str | None, tools: list[str], window: int) -> dict[str, Any]:
    """Return a complete catalog entry. For an unknown model Codex would use a long prompt and other tools."""
    return {
        "slug": model_name,
        "display_name": model_name,
        "description": model_name,
        "base_instructions": DEFAULT_SYSTEM_PROMPT if system_prompt is None else system_prompt,
        "model_messages": None,
        "prefer_websockets": False,
        "support_verbosity": False,
        "apply_patch_tool_type": "freeform" if "apply_patch" in tools else None,
        "input_modalities": ["text"],
        "truncation_policy": {"mode": "tokens", "limit": 10000},
        "supports_parallel_tool_calls": True,
        "tool_mode": None,
        "multi_agent_version": None,
        "use_responses_lite": False,
        "include_skills_usage_instructions": False,
        "include_apps_usage_instructions": False,
        "include_plugin_usage_instructions": False,
        "context_window": window,
        "max_context_window": window,
        "auto_compact_token_limit": None,
        "default_reasoning_summary": "none",
        "default_reasoning_level": "medium",
        "supported_reasoning_levels": [{"effort": "medium", "description": "m"}],
        "shell_type": "shell_command" if "exec_command" in tools else "disabled",
        "visibility": "list",
        "minimal_client_version": "0.1.0",
        "supported_in_api": True,
        "priority": 13,
        "experimental_supported_tools": [],
        "supports_search_tool": False,
        "service_tiers": [],
        "supports_reasoning_summaries": True,
    }


def _config(model_name: str, window: int, compaction: int | None, bash_ms: int) -> str:
    """Return the text of config.toml. JSON strings are valid TOML."""
    off = "\n".join(f"{name} = false" for name in OFF)
    compact = "" if compaction is None else f"model_auto_compact_token_limit = {compaction}\n"
    return f"""\
model = {json.dumps(model_name)}
model_provider = "rl"
model_context_window = {window}
{compact}web_search = "disabled"
check_for_update_on_startup = false
include_permissions_instructions = false
include_apps_instructions = false
include_collaboration_mode_instructions = false
include_environment_context = false
project_doc_max_bytes = 0
model_reasoning_summary = "none"
background_terminal_max_timeout = {bash_ms}
allow_login_shell = false
[model_providers.rl]
name = "rl"
base_url = ""
wire_api = "responses"
env_key = "{TOKEN_VARIABLE}"
request_max_retries = 3
stream_max_retries = 3
stream_idle_timeout_ms = {PATIENCE_MS}
[analytics]
enabled = false
[feedback]
enabled = false
[agents]
enabled = false
[skills]
include_instructions = false
[skills.bundled]
enabled = false
[tools]
experimental_request_user_input = {{ enabled = false }}
[features]
{off}
"""
