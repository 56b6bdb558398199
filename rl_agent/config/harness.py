"""Base config of a harness, which sets up and runs an agent CLI."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from rl_agent.config.plug_in import PlugInConfig

if TYPE_CHECKING:
    from rl_agent.harnesses.base import Harness


@dataclass(kw_only=True)
class HarnessConfig(PlugInConfig, base=True):
    """Options that every agent CLI has."""

    dialect: ClassVar[str] = ""
    """Dotted path of the adapter dialect (a class) for the CLI."""

    @override
    def build(self) -> Harness:
        """Return the harness."""
        raise NotImplementedError

    binary: str | None = None
    """Path of the CLI on this machine; null: the pinned version from `make setup`."""
    cli_tarball: str | None = None
    """npm package (.tgz) with the CLI: a linux-x64 build, or JavaScript, which needs Node."""
    node_tarball: str | None = None
    """Node.js binary distribution (.tar.gz, .tar.xz) for the agent's PATH, for CLIs in JavaScript or for the tasks."""
    cache_dir: str | None = None
    """Folder for unpacked CLIs; null: ~/.cache/rl_agent/clis."""
    prompt: str = "{problem_statement}"
    """Prompt of the agent. It may contain {problem_statement}, {task_id} and {workdir}."""
    system_prompt: str | None = None
    """System prompt; null: the CLI's own."""
    tools: list[str] = field(default_factory=list)
    """Names of the CLI's tools that the agent gets."""
    model_name: str = "policy"
    """Model name for the CLI. Names of the vendor's models select other prompts and limits."""
    max_turns: int | None = None
    """Claude Code's own limit on replies; null: no limit. `rollout.max_turns` limits every CLI."""
    time_budget_s: float = 1800.0
    """Time limit of an agent run."""
    max_context_tokens: int = 65536
    """Context window that the CLI assumes. The adapter enforces the real one, `rollout.max_context_tokens`."""
    bash_timeout_s: float = 120.0
    """Claude Code: time limit of a shell command. Codex: maximum wait in one call, after which the command continues in
    the background."""
    compaction: int | None = None
    """Number of tokens above which the CLI compacts its history; null: never."""
    investigator: bool = False
    """Give the agent a sub-agent that can read and search, but not change files or run commands. Claude Code only, with
    bare=false: Codex gives each sub-agent all tools of the main agent."""
    extra_args: list[str] = field(default_factory=list)
    """Additional arguments of the CLI's command line."""
    extra_env: dict[str, str] = field(default_factory=dict)
    """Additional environment variables of the CLI."""
