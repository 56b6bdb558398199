"""Agent CLIs as the tiny policy sees them: their tools, and the exact format of tool results.

The strings are those of the pinned CLI versions. A test runs the real CLIs and compares token for token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rl_agent.errors import ConfigError
from rl_agent.tokens.messages import ToolCall, ToolSpec

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

SYSTEM_PROMPT: Final = "You fix bugs."
"""System prompt of the embedded default (`harness.system_prompt`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStyle:
    """Tools and output format of one agent CLI."""

    name: str
    tools: tuple[ToolSpec, ...]
    """Tool and parameter names. The tiny policy does not see descriptions."""
    command_tool: str
    """Name of the tool that runs a shell command."""
    argument: str
    """Name of its parameter for the command."""
    after_cat: Callable[[str, random.Random], str]
    """Text of a file -> tool result of `cat FILE`."""
    after_edit: Callable[[str, random.Random], str]
    """File name -> tool result of an in-place edit of a file that was shown before."""
    phrases: tuple[str, ...]
    """Fixed text of the CLI. Each phrase is one token of the tiny policy."""

    def call(self, command: str) -> ToolCall:
        """Return a call of the shell tool."""
        text = command.replace("\\", "\\\\").replace('"', '\\"')
        return ToolCall(
            id="", name=self.command_tool, arguments={self.argument: command}, raw=f'{{"{self.argument}": "{text}"}}'
        )


def _tool(name: str, *parameters: str) -> ToolSpec:
    return ToolSpec(
        name=name, description="", parameters={"type": "object", "properties": {key: {} for key in parameters}}
    )


_EDITED: Final = ("[This command modified 1 file you've previously read: ", ". Call Read before editing.]")


def codex_frame(text: str, *, chunk_id: str, wall: str) -> str:
    """Return the output of a command with exit code 0 in Codex's format."""
    count = -(-len(text.encode()) // 4)  # Codex's estimate: four bytes per token, rounded up
    return f"Chunk ID: {chunk_id}\nWall time: {wall} seconds\nProcess exited with code 0\nOriginal token count: {count}\nOutput:\n{text}"


def _codex_output(text: str, rng: random.Random) -> str:
    """Return `codex_frame` with a random chunk id and wall time, which differ from call to call."""
    wall = 0 if rng.random() < 0.8 else rng.randrange(3000)
    return codex_frame(text, chunk_id=f"{rng.randrange(16**6):06x}", wall=f"0.{wall:04d}")


CLAUDE_CODE: Final = AgentStyle(
    name="claude_code",
    tools=(_tool("Bash", "command", "timeout", "description", "dangerouslyDisableSandbox"),),
    command_tool="Bash",
    argument="command",
    after_cat=lambda text, _: text.rstrip("\n"),
    after_edit=lambda file, _: file.join(_EDITED),
    phrases=(*_EDITED, "Tools: Bash(command, timeout, description, dangerouslyDisableSandbox)"),
)

CODEX: Final = AgentStyle(
    name="codex",
    tools=(
        _tool(
            "exec_command",
            "cmd",
            "justification",
            "login",
            "max_output_tokens",
            "prefix_rule",
            "sandbox_permissions",
            "shell",
            "tty",
            "workdir",
            "yield_time_ms",
        ),
        _tool("write_stdin", "chars", "max_output_tokens", "session_id", "yield_time_ms"),
    ),
    command_tool="exec_command",
    argument="cmd",
    after_cat=_codex_output,
    after_edit=lambda _, rng: _codex_output("", rng),
    phrases=(
        "Chunk ID: ",
        "\nWall time: 0.",
        " seconds\nProcess exited with code ",
        "\nOriginal token count: ",
        "\nOutput:\n",
        "Tools: exec_command(cmd, justification, login, max_output_tokens, prefix_rule, sandbox_permissions, shell, tty, "
        "workdir, yield_time_ms); write_stdin(chars, max_output_tokens, session_id, yield_time_ms)",
    ),
)

_STYLES: Final = (CLAUDE_CODE, CODEX)


def agent_style(name: str) -> AgentStyle:
    """Return an agent style by name. Raises ConfigError for an unknown name."""
    for style in _STYLES:
        if style.name == name:
            return style
    known = ", ".join(style.name for style in _STYLES)
    raise ConfigError(
        f"model.style: unknown agent style `{name}`, so model=tiny does not support this CLI. Known: {known}."
    )
