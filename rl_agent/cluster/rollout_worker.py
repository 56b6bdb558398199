"""The actor that runs episodes: an asyncio process with its own adapter."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from rl_agent.adapters.build import build_adapter
from rl_agent.cluster.process import addressed, exempt_loaded_objects, node_address, set_up
from rl_agent.config.adapter import HistoryReasoning
from rl_agent.engine.parsers import named_parser
from rl_agent.engine.replicas import Replicas
from rl_agent.rollout.episode import EpisodeLimits, EpisodeRunner
from rl_agent.sandboxes.meter import Meter, MeteredProvider
from rl_agent.sandboxes.warm import WarmPool
from rl_agent.tokens.build import build_renderer
from rl_agent.tokens.turn import Sampling

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.adapters.server import AdapterServer
    from rl_agent.config.schema import Config
    from rl_agent.engine.base import EngineServer
    from rl_agent.engine.replicas import ReplicaSet
    from rl_agent.graders.base import Grader
    from rl_agent.harnesses.base import Harness
    from rl_agent.rollout.group import EpisodeRequest, Rollout
    from rl_agent.run_folder import RunFolder
    from rl_agent.sandboxes.base import SandboxProvider


class RolloutWorker:
    """Rollout worker: `serve` runs for the worker's lifetime, `run` once per episode.

    See `cluster.bring_up` for the Ray actor.
    """

    def __init__(self, config: Config, folder: RunFolder, number: int) -> None:
        set_up(folder.log(f"rollout_worker_{number}"))
        self._number = number
        self._config = config = replace(
            config,
            adapter=addressed(config.adapter, "advertise_host", node_address()),
            sandbox=addressed(config.sandbox, "advertise_host", node_address()),
        )
        self._replicas: Replicas | None = None
        self._adapter: AdapterServer | None = None
        self._runner: asyncio.Future[EpisodeRunner] | None = None
        self._stopping = asyncio.Event()
        self._meter = Meter()

    async def serve(self, replicas: ReplicaSet, model_folder: Path) -> None:
        """Run the adapter with the policy servers until `stop`."""
        config, rollout = self._config, self._config.rollout
        booting: SandboxProvider = config.sandbox.build()
        harness: Harness = config.harness.build()
        grader: Grader = config.grader.build()
        server: EngineServer = config.engine.build()
        assets = harness.find_assets()  # a missing CLI fails here, once
        await booting.sweep()
        keep = config.adapter.history_reasoning is HistoryReasoning.keep
        pool = WarmPool(booting, size=rollout.warm_sandboxes)
        first = self._number % len(replicas.addresses)
        async with Replicas(server, first=first) as self._replicas, pool:
            await self._replicas.renew(replicas)
            adapter = build_adapter(
                config.adapter,
                harness_dialect=config.harness.dialect,
                engine=self._replicas,
                renderer=build_renderer(
                    model_folder,
                    config.model.renderer,
                    keep_reasoning=keep,
                    reply_parser=named_parser(model_folder, config.model.tool_parser, config.model.reasoning_parser),
                ),
                sampling=_sampling(config),
                max_context_tokens=rollout.max_context_tokens,
                max_turns=rollout.max_turns,
            )
            async with adapter as self._adapter:
                runner = EpisodeRunner(
                    provider=MeteredProvider(pool, self._meter),
                    harness=harness,
                    assets=assets,
                    grader=grader,
                    adapter=adapter,
                    advertise_host=config.adapter.advertise_host,
                    limits=EpisodeLimits(
                        agent_s=config.harness.time_budget_s,
                        workspace_s=rollout.workspace_timeout_s,
                        sandbox_s=config.agent_sandbox_s,
                        guard_s=config.guard_s,
                    ),
                )
                exempt_loaded_objects()
                self._ready().set_result(runner)
                await self._stopping.wait()

    async def ready(self) -> None:
        """Wait until episodes can run."""
        await self._ready()

    async def renew(self, replicas: ReplicaSet) -> None:
        """Set the addresses and the version of the policy servers."""
        if self._replicas is not None:
            await self._replicas.renew(replicas)

    async def run(self, request: EpisodeRequest) -> Rollout:
        """Run one episode. The rollout carries the sandbox metrics of this worker since the last episode."""
        rollout = await (await self._ready()).run(request)
        return replace(rollout, sandbox=self._meter.take())

    async def open_sessions(self) -> int:
        """Return the number of open sessions of the adapter."""
        return 0 if self._adapter is None else self._adapter.open_sessions

    async def stop(self) -> None:
        """End `serve`."""
        self._stopping.set()

    def _ready(self) -> asyncio.Future[EpisodeRunner]:
        """Return the future of the runner. It is created on first use, since it needs a running loop."""
        if self._runner is None:
            self._runner = asyncio.get_running_loop().create_future()
        return self._runner


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
