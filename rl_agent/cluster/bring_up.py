"""Start the processes of a run on Ray, and stop them however the run ends."""

from __future__ import annotations

import asyncio
import functools
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import ray
from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

from rl_agent.cluster.calls import Actor
from rl_agent.cluster.nodes import PACKAGE, require_nodes
from rl_agent.cluster.own_node import own_node
from rl_agent.cluster.placement import RayPlacement
from rl_agent.cluster.policy_server import PolicyServer
from rl_agent.cluster.policy_servers import PolicyServers
from rl_agent.cluster.reaper import reaped
from rl_agent.cluster.rollout_worker import RolloutWorker
from rl_agent.cluster.rollout_workers import RolloutWorkers
from rl_agent.cluster.run_state import RunState
from rl_agent.cluster.trainer_rank import TrainerRank
from rl_agent.cluster.trainer_ranks import Trainers
from rl_agent.errors import ConfigError, InfraError
from rl_agent.rollout.group import AbortReason
from rl_agent.secrets import set_for_children

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rl_agent.cluster.calls import RemoteProcess
    from rl_agent.cluster.own_node import OwnNode
    from rl_agent.config.schema import Config
    from rl_agent.engine.base import EngineLoad
    from rl_agent.rollout.group import EpisodeRequest, Rollout
    from rl_agent.run_folder import RunFolder
    from rl_agent.tokens.turn import Int32

__all__ = ["Cluster", "Trainers", "cluster", "trainers"]

log = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 30.0
SETTLE_S: Final = 90.0
"""Time to wait after an engine error for Ray to notice a lost node. Ray takes up to a minute."""
CALLS_AT_ONCE: Final = 4096
"""Concurrent calls of one async actor. The scheduler sets the real limit."""


class Cluster:
    """The processes of a run, for use by the jobs."""

    def __init__(
        self, trainers: Trainers, servers: PolicyServers, workers: RolloutWorkers, run_state: RunState, *, wakes: bool
    ) -> None:
        self.trainers = trainers
        self._servers = servers
        self._workers = workers
        self._run_state = run_state
        self._wakes = wakes

    @property
    def restarts(self) -> dict[str, float]:
        """Metrics: number of restarted processes by kind."""
        servers, workers = self._servers.restarts, self._workers.restarts
        return {"cluster/policy_server_restarts": float(servers), "cluster/rollout_worker_restarts": float(workers)}

    async def run_episode(self, request: EpisodeRequest) -> Rollout:
        """Run one episode as soon as a policy server and a worker are up.

        A lost worker or policy server gives an aborted rollout (WORKER_LOST, ENGINE_ERROR), never an error. Cancelling
        the call ends the agent, its sandbox and its generations before it returns. Raises the error that ends the run,
        and internal errors.
        """
        await self._servers.serving()
        rollout = await self._workers.run(request)
        if rollout.abort is AbortReason.ENGINE_ERROR:
            # the next attempt must not go to a server that is dead but not detected yet
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    await self._servers.load()
        return rollout

    async def push(self, version: int, probe_tokens: Int32) -> float:
        """Push the trainer's weights to all policy servers, verify them, and return the probe's largest difference."""
        if self._wakes:
            await self._servers.wake()
        return await self._servers.push(version, np.asarray(probe_tokens, dtype=np.int32))

    async def load(self) -> EngineLoad:
        """Return the load of the policy servers."""
        return await self._servers.load()

    async def open_sessions(self) -> int:
        """Return the number of sessions open in the adapters."""
        return await self._workers.open_sessions()

    async def watch(self) -> None:
        """Wait forever. Raises the error that ends the run: a lost trainer rank, or a process lost too often."""
        await self._run_state.until(lambda: False)


@asynccontextmanager
async def trainers(config: Config, folder: RunFolder, model_folder: Path) -> AsyncIterator[Trainers]:
    """Start only the trainer (job=sft)."""
    async with _ray(config, folder), _placement(config, config.trainer.world_size) as placement:
        started = Trainers(_ranks(config, folder, placement))
        await started.start(model_folder)
        yield started


@asynccontextmanager
async def cluster(
    config: Config, folder: RunFolder, model_folder: Path, *, trains: bool = True
) -> AsyncIterator[Cluster]:
    """Start trainer, policy servers and rollout workers. The servers start while the trainer builds its model.

    With `trains=False` there is no trainer, and the engine keeps the weights of `model_folder` (job=rollout,
    job=evaluate).
    """
    async with (
        _ray(config, folder) as node,
        _placement(config, config.trainer.world_size if trains else 0) as placement,
    ):
        run_state = RunState()
        servers: PolicyServers

        async def sleep() -> None:
            await servers.sleep()

        ranks = Trainers(
            _ranks(config, folder, placement) if trains else [], sleep if config.cluster.colocated else None
        )
        servers = PolicyServers(
            config,
            make=functools.partial(_server, config, folder, placement),
            trainers=ranks,
            run_state=run_state,
            model_folder=model_folder,
            weight_backend=config.weights.backend,
        )
        workers = RolloutWorkers(
            config,
            make=functools.partial(_worker, config, folder, placement),
            replicas=lambda: servers.set,
            run_state=run_state,
            model_folder=model_folder,
        )
        try:
            async with _time_limit(config.cluster.start_timeout_s), asyncio.TaskGroup() as starting:
                starting.create_task(servers.start())
                if trains:
                    starting.create_task(ranks.start(model_folder))
            async with asyncio.TaskGroup() as keeping:
                watching = [keeping.create_task(servers.supervise())]
                if trains:
                    watching.append(keeping.create_task(ranks.watch(run_state)))
                keeping.create_task(workers.supervise())
                async with _time_limit(config.cluster.start_timeout_s):
                    await workers.all_ready()
                yield Cluster(ranks, servers, workers, run_state, wakes=config.cluster.colocated)
                for task in watching:
                    task.cancel()
                await _stop(workers)
        finally:
            if not node.lost:
                await _stop(workers, servers)


def _ranks(config: Config, folder: RunFolder, placement: RayPlacement) -> list[RemoteProcess]:
    world = config.trainer.world_size
    return [
        Actor(_start(TrainerRank, placement.rank(number), config, folder, number, world), f"trainer rank {number}")
        for number in range(world)
    ]


def _server(config: Config, folder: RunFolder, placement: RayPlacement, number: int) -> RemoteProcess:
    options = placement.server(number) | {"max_concurrency": CALLS_AT_ONCE}
    return Actor(_start(PolicyServer, options, config, folder, number), f"policy server {number}")


def _worker(config: Config, folder: RunFolder, placement: RayPlacement, number: int) -> RemoteProcess:
    options = placement.worker() | {"max_concurrency": CALLS_AT_ONCE}
    return Actor(_start(RolloutWorker, options, config, folder, number), f"rollout worker {number}")


def _start(kind: type, options: dict[str, Any], *arguments: Any) -> Any:
    """Start a Ray actor of a plain class. The run restarts lost actors itself, so Ray must not."""
    return ray.remote(kind).options(max_restarts=0, **options).remote(*arguments)


@asynccontextmanager
async def _placement(config: Config, ranks: int) -> AsyncIterator[RayPlacement]:
    placement = RayPlacement(config.cluster, ranks)
    try:
        await asyncio.to_thread(placement.require, config.cluster.start_timeout_s)
        yield placement
    finally:
        placement.remove()


@asynccontextmanager
async def _time_limit(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise InfraError(
            f"cluster.start_timeout_s={seconds:.0f}: the processes were not up in time. Look at their logs."
        ) from None


@asynccontextmanager
async def _ray(config: Config, folder: RunFolder) -> AsyncIterator[OwnNode]:
    address = config.cluster.address
    set_for_children("RAY_USAGE_STATS_ENABLED", "0")
    set_for_children("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    set_for_children("RAY_worker_niceness", "0")  # Ray's default, 15, gives the trainer less CPU than the agents
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)  # logs a note about tokens at every start
    options: dict[str, Any] = {"num_cpus": 2, "include_dashboard": False} if address is None else {}
    if config.cluster.ship_code:
        options["runtime_env"] = {"py_modules": [str(PACKAGE)]}
    async with reaped(folder.root):
        try:
            if address is not None:  # Ray uses the user's token only for a cluster that it has found itself
                maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level=logging.WARNING,
                configure_logging=False,
                **options,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            if address is None:
                raise
            raise ConfigError(
                f"cluster.address={address}: no Ray cluster answers there ({error}). Start one with "
                "`python -m rl_agent.cluster up hosts=...`, and start the run on one of its nodes."
            ) from error
        try:
            if address is not None:
                await asyncio.to_thread(require_nodes, folder)
            async with own_node() as node:
                yield node
        finally:
            ray.shutdown()


async def _stop(*parts: PolicyServers | RolloutWorkers) -> None:
    """Stop all processes and let them clean up. `ray.shutdown` kills those that hang, with their process trees."""
    for part in parts:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await part.stop()
