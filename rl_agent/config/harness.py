"""Base config of a harness: which agent CLI works on the tasks, and how it is set up."""

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
    """Dotted path of the adapter dialect (a class) that the CLI speaks."""

    @override
    def build(self) -> Harness:
        """Return the harness."""
        raise NotImplementedError

    binary: str | None = None
    """The CLI's program on this machine; null: the pinned one that `make setup` fetched."""
    cli_tarball: str | None = None
    """An npm package (.tgz) to take the CLI from instead: its linux-x64 build, or one in JavaScript, which Node runs."""
    node_tarball: str | None = None
    """A Node.js binary distribution (.tar.gz, .tar.xz) to put on the agent's PATH: for CLIs in JavaScript, or for the tasks."""
    cache_dir: str | None = None
    """Folder for unpacked CLIs; null: ~/.cache/rl_agent/clis."""
    prompt: str = "{problem_statement}"
    """The agent's prompt; may use {problem_statement}, {task_id} and {workdir}."""
    system_prompt: str | None = None
    """Replaces the CLI's own; null keeps it."""
    tools: list[str] = field(default_factory=list)
    model_name: str = "policy"
    """Model name that the CLI is given. Names that the vendor knows select other prompts and limits."""
    max_turns: int | None = None
    """The CLI's own limit on replies, Claude Code only; null: none. `rollout.max_turns` bounds every CLI."""
    time_budget_s: float = 1800.0
    max_context_tokens: int = 65536
    """The window that the CLI believes in. The engine's real one is the adapter's business."""
    bash_timeout_s: float = 120.0
    """Claude Code: longest run of one shell command. Codex: longest wait for one in one call; it goes on in the background."""
    compaction: int | None = None
    """Let the CLI summarise its history above this many tokens; null: never."""
    investigator: bool = False
    """Let the agent send a sub-agent that reads and searches, and can neither change files nor run commands. Claude Code only, with
    bare=false; Codex gives each sub-agent all that the main agent has."""
    extra_args: list[str] = field(default_factory=list)
    """More words for the CLI's command line, after ours."""
    extra_env: dict[str, str] = field(default_factory=dict)
