"""The actor that runs episodes: an asyncio process with its own adapter."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from rl_agent.adapters.server import AdapterServer
from rl_agent.cluster.process import set_up
from rl_agent.config.load import build, locate
from rl_agent.engine.base import EngineServer
from rl_agent.graders.base import Grader
from rl_agent.harnesses.base import Harness
from rl_agent.rollout.episode import EpisodeLimits, EpisodeRunner
from rl_agent.sandboxes.base import SandboxProvider
from rl_agent.tokens.build import build_renderer
from rl_agent.tokens.turn import Sampling

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.config.schema import Config
    from rl_agent.rollout.group import EpisodeRequest, Rollout
    from rl_agent.run_folder import RunFolder

GUARD_MARGIN_S = 180.0
"""What a rollout may take beyond agent and grading before its guard fires."""


class RolloutWorker:
    """Wrapped as a Ray actor by `cluster.bring_up`."""

    def __init__(self, config: Config, folder: RunFolder, number: int) -> None:
        set_up(folder.log(f"rollout_worker_{number}"))
        self._config = config
        self._stack = AsyncExitStack()
        self._runner: EpisodeRunner | None = None

    async def start(self, address: str, model_folder: Path) -> None:
        """Open the adapter against the policy server at `address`, and remove what killed runs left."""
        config, rollout = self._config, self._config.rollout
        provider: SandboxProvider = build(config.sandbox, SandboxProvider)
        harness: Harness = build(config.harness, Harness)
        grader: Grader = build(config.grader, Grader)
        await provider.sweep()
        renderer = build_renderer(
            model_folder,
            config.model.renderer,
            keep_reasoning=config.adapter.history_reasoning == "keep",
        )
        server: EngineServer = build(config.engine, EngineServer)
        engine = await self._stack.enter_async_context(server.client(address))
        dialect = harness.dialect if config.adapter.dialect == "auto" else config.adapter.dialect
        adapter = AdapterServer(
            config=config.adapter,
            dialects=[locate(dialect)()],
            engine=engine,
            renderer=renderer,
            sampling=_sampling(config),
            max_turns=rollout.max_turns,
            max_context_tokens=rollout.max_context_tokens,
        )
        await self._stack.enter_async_context(adapter)
        guard = rollout.guard_s or config.harness.time_budget_s + config.grader.timeout_s + GUARD_MARGIN_S
        self._runner = EpisodeRunner(
            provider=provider,
            harness=harness,
            grader=grader,
            adapter=adapter,
            limits=EpisodeLimits(
                agent_s=config.harness.time_budget_s, workspace_s=rollout.workspace_timeout_s, guard_s=guard
            ),
        )

    async def run(self, request: EpisodeRequest) -> Rollout:
        """One episode."""
        if self._runner is None:
            raise RuntimeError("run before start")
        return await self._runner.run(request)

    async def stop(self) -> None:
        """Close the adapter and the connection to the engine."""
        await self._stack.aclose()


def _sampling(config: Config) -> Sampling:
    sampling = config.rollout.sampling
    return Sampling(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        max_tokens=config.rollout.max_response_tokens,
        stop_token_ids=tuple(sampling.stop_token_ids),
    )
