"""Rendering of tools for the policy: names and parameters as JSON-schema functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rl_agent.tokens.messages import ToolKind

if TYPE_CHECKING:
    from rl_agent.tokens.messages import ToolSpec

CUSTOM_INPUT: Final = "input"
"""Only parameter of a free-text tool."""


def shown_name(tool: ToolSpec) -> str:
    """Return the tool's name for the policy. The namespace makes it unique."""
    return f"{tool.namespace}.{tool.name}" if tool.namespace else tool.name


def shown_function(tool: ToolSpec) -> dict[str, Any]:
    """Return the tool in the form that chat templates take."""
    parameters: dict[str, Any] = dict(tool.parameters)
    if tool.kind is ToolKind.CUSTOM:
        parameters = {"type": "object", "properties": {CUSTOM_INPUT: {"type": "string"}}, "required": [CUSTOM_INPUT]}
    return {"name": shown_name(tool), "description": tool.description, "parameters": parameters}
