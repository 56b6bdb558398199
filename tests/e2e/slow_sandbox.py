"""The real local sandbox and the scripted engine with one slow moment, so that a test can be sure to be in it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_agent.embedded.demonstrator import Demonstrator, DemonstratorConfig
from rl_agent.sandboxes.local.provider import LocalProvider, LocalSandboxConfig
from rl_agent.sandboxes.meter import Meter, MeteredSandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rl_agent.sandboxes.base import ExecResult, Sandbox
    from rl_agent.tokens.turn import Generation, Int32, Sampling

SLOW = "sleep 61"
CHOICE = "slow_at"
"""A file beside the run folder that names the moment: `boot`, `prepare`, `agent`, `capture`, `grade`."""
REACHED = "reached"
"""A file that appears beside it when the moment has come."""


def chosen(folder: Path) -> str:
    return (folder / CHOICE).read_text() if (folder / CHOICE).exists() else ""


@dataclass(kw_only=True)
class SlowDemonstratorConfig(DemonstratorConfig):
    def build(self) -> SlowDemonstrator:
        return SlowDemonstrator(self)


class SlowDemonstrator(Demonstrator):
    """Its reply takes a minute where the moment is `agent`."""

    async def generate(self, tokens: Int32, sampling: Sampling, *, request_id: str, priority: int = 0) -> Generation:
        folder = self._state.parents[2]  # <folder>/run/logs/vllm.json
        if chosen(folder) == "agent":
            (folder / REACHED).touch()
            await asyncio.sleep(60)
        return await super().generate(tokens, sampling, request_id=request_id, priority=priority)


@dataclass(kw_only=True)
class SlowLocalConfig(LocalSandboxConfig):
    def build(self) -> SlowLocal:
        return SlowLocal(self)


class SlowLocal(LocalProvider):
    """Its slow command comes at the chosen moment."""

    def __init__(self, config: SlowLocalConfig) -> None:
        super().__init__(config)
        assert config.state_dir is not None
        self._beside = Path(config.state_dir).parent

    @asynccontextmanager
    async def boot(self, image: str, **more: Any) -> AsyncIterator[Sandbox]:  # type: ignore[override]
        moment = chosen(self._beside)
        is_agents = "rollout" in (more.get("labels") or {})  # the sandbox for grading is nobody's in particular
        if is_agents == (moment == "grade"):
            moment = ""
        async with super().boot(image, **more) as sandbox:
            if moment == "boot":
                (self._beside / REACHED).touch()
                await sandbox.exec(SLOW, timeout=90)
            yield SlowSandbox(sandbox, moment, self._beside / REACHED)


class SlowSandbox(MeteredSandbox):
    """Its slow command comes before the first one, or before the one that captures the agent's work."""

    def __init__(self, sandbox: Sandbox, moment: str, reached: Path) -> None:
        super().__init__(sandbox, Meter())
        self._inner = sandbox
        self._moment = moment
        self._reached = reached

    async def exec(self, cmd: str, **more: Any) -> ExecResult:  # type: ignore[override]
        captures = "diff --cached" in cmd
        if self._moment in {"prepare", "grade"} or (self._moment == "capture" and captures):
            self._reached.touch()
            await self._inner.exec(SLOW, timeout=90)
        return await super().exec(cmd, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
