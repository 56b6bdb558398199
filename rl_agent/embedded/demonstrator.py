"""Scripted engine that answers the prompts of a toy task with the replies of a demonstration, token for token.

It replaces vLLM in runs that must not depend on a policy: tests of the live CLIs, and `engine=demonstrator`. It keeps
no state between requests: the prompt contains the task and its progress.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from typing_extensions import override

from rl_agent.config.engine import EngineConfig
from rl_agent.embedded.agent_style import agent_style
from rl_agent.embedded.demonstration import encoder, replies
from rl_agent.embedded.toy import ToyTask
from rl_agent.embedded.toy_kinds import KINDS
from rl_agent.engine.base import EngineLoad
from rl_agent.errors import EngineError
from rl_agent.run_folder import write_atomic
from rl_agent.tokens.template_renderer import TemplateRenderer
from rl_agent.tokens.turn import FinishReason, Generation, VersionSpan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rl_agent.embedded.agent_style import AgentStyle
    from rl_agent.engine.base import PauseMode
    from rl_agent.tokens.turn import Int32, Sampling
    from rl_agent.weights.base import Probe, WeightUpdate

_STATEMENT: Final = re.compile(r"Fix (?P<file>\S+\.py): (?P<function>\w+) must (?P<sentence>[^\n]+)\.<\|im_end\|>")
_SIGNATURE: Final = r"def {}\((?P<arguments>[^)]*)\):"
_KINDS: Final = {kind.sentence: kind for kind in KINDS.values()}


@dataclass(kw_only=True)
class DemonstratorConfig(EngineConfig):
    """Scripted engine that solves toy tasks, in place of a policy."""

    runs_model: ClassVar[bool] = False
    style: str = "claude_code"
    """Agent CLI whose tools the engine calls."""
    delay_s: float = 0.0
    """Duration of each reply."""

    @override
    def build(self) -> Demonstrator:
        return Demonstrator(self)


@dataclass(slots=True)
class _Script:
    """Task and progress of a prompt."""

    task: ToyTask
    turns: int
    """Number of replies in the prompt."""


class Demonstrator:
    """Server and client of the scripted engine in one class."""

    def __init__(self, config: DemonstratorConfig) -> None:
        self._style: AgentStyle = agent_style(config.style)
        self._delay_s = config.delay_s
        self._renderer: TemplateRenderer | None = None
        self._encode: Callable[[str], Int32] | None = None
        self._state = Path()

    async def start(
        self,
        *,
        model_folder: Path,
        log: Path,
        weight_backend: str,
        max_context_tokens: int,
        node_address: str = "127.0.0.1",
        sleeps: bool = False,
    ) -> str:
        """See `engine.base.EngineServer`. The address is a file that contains the model folder and the weight version.

        A restarted server keeps its version: clients answer without the server, so the version in the file must not
        change.
        """
        self._state = log.with_suffix(".json")
        self._write(model_folder, self._read()["version"] if self._state.exists() else 0)
        return str(self._state)

    @asynccontextmanager
    async def client(self, address: str) -> AsyncIterator[Self]:
        """See `engine.base.EngineServer`."""
        self._state = Path(address)
        folder = Path(self._read()["model_folder"])
        self._renderer, self._encode = TemplateRenderer(folder), encoder(folder)
        yield self

    async def wait(self) -> None:
        """See `engine.base.EngineServer`. Without a process, this waits forever."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """See `engine.base.EngineServer`."""

    async def generate(self, tokens: Int32, sampling: Sampling, *, request_id: str, priority: int = 0) -> Generation:
        """See `engine.base.Engine`. Raises EngineError if the prompt is not a toy task."""
        if self._renderer is None or self._encode is None:
            raise EngineError("Demonstrator: not connected. Use it through `client`.")
        await asyncio.sleep(self._delay_s)
        script = _read(self._renderer.text(tokens), request_id)
        reply = self._encode(replies(script.task, script.task.right, self._style)[script.turns])
        return Generation(
            tokens=reply,
            logprobs=np.zeros(len(reply), dtype=np.float32),
            finish_reason=FinishReason.STOP,
            spans=(VersionSpan(version=self._read()["version"], start=0, end=len(reply)),),
        )

    async def pause(self, mode: PauseMode) -> None:
        """See `engine.base.Engine`. Nothing runs in the background, so this does nothing."""

    async def resume(self) -> None:
        """See `engine.base.Engine`."""

    async def push(self, update: WeightUpdate, probe: Probe | None) -> float:
        """See `engine.base.Engine`."""
        self._write(Path(self._read()["model_folder"]), update.version)
        return 0.0

    def renew(self, version: int) -> None:
        """See `engine.base.Engine`. Every answer reads the version from the file."""

    async def hold(self) -> None:
        """See `engine.base.Engine`."""

    async def load(self) -> EngineLoad:
        """See `engine.base.Engine`. The load is unknown."""
        return EngineLoad()

    async def sleep(self) -> None:
        """See `engine.base.Engine`. There is no GPU memory to release."""

    async def wake(self) -> None:
        """See `engine.base.Engine`."""

    def _read(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self._state.read_text())
        return state

    def _write(self, model_folder: Path, version: int) -> None:
        write_atomic(self._state, json.dumps({"model_folder": str(model_folder), "version": version}).encode())


def _read(text: str, request_id: str) -> _Script:
    statement = _STATEMENT.search(text)
    kind = _KINDS.get(statement["sentence"]) if statement else None
    if statement is None or kind is None:
        raise EngineError(
            f"{request_id}: engine=demonstrator supports only toy tasks, but the prompt ends with {text[-200:]!r}. "
            "Set data=toy."
        )
    signature = re.search(_SIGNATURE.format(statement["function"]), text)
    names = signature["arguments"].split(", ") if signature else ["x", "y"]
    x, y = names[0], names[-1]
    task = ToyTask(
        task_id=request_id,
        kind=kind,
        file=statement["file"],
        function=statement["function"],
        arguments=(x, y),
        source="",
        right=kind.right.format(x=x, y=y),
        wrong=(),
    )
    return _Script(task=task, turns=text.count("<|im_start|>assistant\n") - 1)
