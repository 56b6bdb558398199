"""Demonstrations: runs of a scripted agent on toy tasks, as the exact tokens of a rollout.

The renderer makes every prompt and bridge as in a real session. Only the tool results are synthetic, in the exact
format of the live CLI.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import numpy as np

from rl_agent.embedded.agent_style import SYSTEM_PROMPT
from rl_agent.tasks.source import Demonstration
from rl_agent.tokens.messages import Conversation, Message, Role
from rl_agent.tokens.turn import FinishReason, Generation, Turn, VersionSpan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rl_agent.embedded.agent_style import AgentStyle
    from rl_agent.embedded.toy import ToyTask
    from rl_agent.tokens.renderer import Renderer
    from rl_agent.tokens.turn import Int32

FAREWELL: Final = "Done."
END: Final = "<|im_end|>"
"""End-of-turn token of the tiny policy."""


def encoder(folder: Path) -> Callable[[str], Int32]:
    """Return the function text -> [T] int32 of the tokenizer in a model folder. It recognizes special tokens."""
    from tokenizers import Tokenizer  # noqa: PLC0415 (heavy; most of this package does not need it)

    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: np.array(backend.encode(text, add_special_tokens=False).ids, dtype=np.int32)


def replies(task: ToyTask, expression: str, style: AgentStyle) -> list[str]:
    """Return the texts of the three turns that write `expression` into the file, with their end-of-turn tokens."""
    look = _call_text(style, f"cat {task.file}")
    edit = _call_text(style, f"sed -i '2s|.*|    return {expression}|' {task.file}")
    return [look, edit, FAREWELL + END]


def opening(task_statement: str, style: AgentStyle) -> Conversation:
    """Return the CLI's first request."""
    messages = (Message(role=Role.SYSTEM, content=SYSTEM_PROMPT), Message(role=Role.USER, content=task_statement))
    return Conversation(messages=messages, tools=style.tools)


class Demonstrations:
    """Factory of demonstrations for one style and one renderer."""

    def __init__(self, style: AgentStyle, renderer: Renderer, encode: Callable[[str], Int32]) -> None:
        """`encode`: the text of a reply -> [T] int32, with special tokens."""
        self._style = style
        self._renderer = renderer
        self._encode = encode

    def make(self, task: ToyTask, expression: str) -> Demonstration:
        """Return the trajectory that writes `expression`. Its random details depend only on the task."""
        rng = random.Random(task.task_id)  # noqa: S311 (not for secrets)
        results = [self._style.after_cat(task.source, rng), self._style.after_edit(task.file, rng)]
        pieces: list[Int32] = []
        sampled: list[bool] = []
        last: Turn | None = None
        for number, reply in enumerate(replies(task, expression, self._style)):
            prompt = self._prompt(task, last, results[number - 1])
            last = _turn(prompt, self._encode(reply), number)
            pieces += [prompt, last.generation.tokens]
            sampled += [False] * len(prompt) + [True] * len(last.generation.tokens)
        return Demonstration(tokens=np.concatenate(pieces), sampled=np.array(sampled))

    def mixed(self, task: ToyTask, right_share: float) -> Demonstration:
        """Return a demonstration whose fix is right with probability `right_share`, else a plausible mistake."""
        rng = random.Random(f"{task.task_id}/fix")  # noqa: S311 (not for secrets)
        expression = task.right if rng.random() < right_share else rng.choice(task.wrong)
        return self.make(task, expression)

    def _prompt(self, task: ToyTask, last: Turn | None, result: str) -> Int32:
        if last is None:
            return self._renderer.render(opening(task.problem_statement, self._style))
        message = Message(role=Role.TOOL, content=result, tool_call_id="call", tool_name=self._style.command_tool)
        bridge = self._renderer.bridge(last, [message], tools=self._style.tools, has_reasoning=False)
        if bridge is None:
            raise ValueError("the chat template of the tiny policy does not support `bridge`")
        return bridge


def _call_text(style: AgentStyle, command: str) -> str:
    return f'<tool_call>{{"name": "{style.command_tool}", "arguments": {style.call(command).raw}}}</tool_call>{END}'


def _turn(prompt: Int32, tokens: Int32, number: int) -> Turn:
    generation = Generation(
        tokens=tokens,
        logprobs=np.zeros(len(tokens), dtype=np.float32),
        finish_reason=FinishReason.STOP,
        spans=(VersionSpan(version=0, start=0, end=len(tokens)),),
    )
    return Turn(turn_id=str(number), prompt_tokens=prompt, generation=generation, started_s=0.0)
