"""The actor that owns one vLLM server and pushes weights into it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from rl_agent.cluster.process import set_up
from rl_agent.config.load import build
from rl_agent.engine.base import EngineServer

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.config.schema import Config
    from rl_agent.engine.base import Engine
    from rl_agent.run_folder import RunFolder
    from rl_agent.weights.base import Probe, WeightUpdate


class PolicyServer:
    """Wrapped as a Ray actor by `cluster.bring_up`."""

    def __init__(self, config: Config, folder: RunFolder) -> None:
        set_up(folder.log("policy_server"))
        self._config = config
        self._folder = folder
        self._server: EngineServer = build(config.engine, EngineServer)
        self._stack = AsyncExitStack()
        self._engine: Engine | None = None

    async def start(self, model_folder: Path, weight_backend: str) -> str:
        """Start the server; returns its address."""
        address = await self._server.start(
            model_folder=model_folder,
            log=self._folder.log("vllm"),
            weight_backend=weight_backend,
            max_context_tokens=self._config.rollout.max_context_tokens,
        )
        self._engine = await self._stack.enter_async_context(self._server.client(address))
        return address

    async def push(self, update: WeightUpdate, probe: Probe | None) -> float:
        """See `engine.base.Engine.push`."""
        if self._engine is None:
            raise RuntimeError("push before start")
        return await self._engine.push(update, probe)

    async def watch(self) -> None:
        """Never returns while the server lives; raises EngineError when it ends by itself."""
        await self._server.wait()

    async def stop(self) -> None:
        """End the server."""
        await self._stack.aclose()
        await self._server.stop()
