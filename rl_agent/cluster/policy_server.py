"""The actor that owns one vLLM server and pushes weights into it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from rl_agent.cluster.process import own_address, set_up

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.config.schema import Config
    from rl_agent.engine.base import Engine, EngineLoad, EngineServer
    from rl_agent.run_folder import RunFolder
    from rl_agent.weights.base import Probe, WeightUpdate


class PolicyServer:
    """One replica of the policy server. `cluster.bring_up` wraps it as a Ray actor."""

    def __init__(self, config: Config, folder: RunFolder, number: int) -> None:
        suffix = f"_{number}" if config.cluster.engine_replicas > 1 else ""
        set_up(folder.log(f"policy_server{suffix}"))
        self._config = config
        self._log = folder.log(f"vllm{suffix}")
        self._server: EngineServer = config.engine.build()
        self._stack = AsyncExitStack()
        self._engine: Engine | None = None

    async def start(self, model_folder: Path, weight_backend: str) -> str:
        """Start the server and return its address."""
        address = await self._server.start(
            model_folder=model_folder,
            log=self._log,
            weight_backend=weight_backend,
            max_context_tokens=self._config.rollout.max_context_tokens,
            node_address=own_address(self._config),
            sleeps=self._config.cluster.colocated,
        )
        self._engine = await self._stack.enter_async_context(self._server.client(address))
        return address

    async def hold(self) -> None:
        """See `engine.base.Engine.hold`."""
        await self._client().hold()

    async def push(self, update: WeightUpdate, probe: Probe | None) -> float:
        """See `engine.base.Engine.push`."""
        return await self._client().push(update, probe)

    async def load(self) -> EngineLoad:
        """See `engine.base.Engine.load`."""
        return await self._client().load()

    async def sleep(self) -> None:
        """See `engine.base.Engine.sleep`."""
        await self._client().sleep()

    async def wake(self) -> None:
        """See `engine.base.Engine.wake`."""
        await self._client().wake()

    async def watch(self) -> None:
        """Wait for the server. Raises EngineError if it exits by itself."""
        await self._server.wait()

    async def stop(self) -> None:
        """Stop the server."""
        await self._stack.aclose()
        await self._server.stop()

    def _client(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("PolicyServer: not started. Call start first.")
        return self._engine
