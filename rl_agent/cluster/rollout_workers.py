"""All rollout workers. An episode runs on the least busy one, and a lost worker is restarted on any suitable node."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agent.cluster.calls import LostActorError, remote, stop
from rl_agent.cluster.rollout_worker import RolloutWorker
from rl_agent.cluster.run_state import RestartLimit
from rl_agent.errors import InfraError
from rl_agent.rollout.group import AbortReason, aborted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rl_agent.cluster.calls import RemoteProcess
    from rl_agent.cluster.run_state import RunState
    from rl_agent.config.schema import Config
    from rl_agent.engine.replicas import ReplicaSet
    from rl_agent.rollout.group import EpisodeRequest, Rollout

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Worker:
    number: int
    process: RemoteProcess
    limit: RestartLimit
    life: int = 0
    """Number of restarts."""
    ready: bool = False
    episodes: int = 0
    """Number of running episodes."""
    told: ReplicaSet | None = None
    """Policy servers that were last sent to the worker."""

    @property
    def name(self) -> str:
        return f"rollout worker {self.number}"


class RolloutWorkers:
    """All rollout workers.

    `make(n)` starts the process of worker `n`; `replicas()` returns the addresses of the policy servers.
    """

    def __init__(
        self,
        config: Config,
        *,
        make: Callable[[int], RemoteProcess],
        replicas: Callable[[], ReplicaSet],
        run_state: RunState,
        model_folder: Path,
    ) -> None:
        cluster = config.cluster
        self._make = make
        self._replicas = replicas
        self._run_state = run_state
        self._model_folder = model_folder
        self._stopping = False
        self._workers = [
            _Worker(n, make(n), RestartLimit(cluster.max_restarts, cluster.restart_window_s))
            for n in range(cluster.rollout_workers)
        ]

    @property
    def restarts(self) -> int:
        """Number of restarts of all workers."""
        return sum(worker.life for worker in self._workers)

    async def all_ready(self) -> None:
        """Wait until every worker can run episodes. Raises the error that ends the run."""
        await self._run_state.until(lambda: all(worker.ready for worker in self._workers))

    async def supervise(self) -> None:
        """Keep the workers serving, restart lost ones, and send them the policy servers' addresses, until `stop`.

        Raises the error of a worker that fails on its own, for example an invalid configuration.
        """
        async with asyncio.TaskGroup() as keeping:
            for worker in self._workers:
                keeping.create_task(self._keep(worker))

    async def run(self, request: EpisodeRequest) -> Rollout:
        """Run one episode.

        Losing its worker gives an aborted rollout. Raises the error that ends the run, and internal errors.
        """
        await self._run_state.until(lambda: any(worker.ready for worker in self._workers))
        worker = min((w for w in self._workers if w.ready), key=lambda w: (w.episodes, w.number))
        life = worker.life
        worker.episodes += 1
        try:
            rollout = await remote(worker.process, RolloutWorker.run, ends=True)(request)
        except LostActorError as error:
            if worker.life == life:  # the loss may be detected here first: send no more episodes to this worker
                worker.ready = False
            return aborted(request, AbortReason.WORKER_LOST, str(error))
        finally:
            if worker.life == life:
                worker.episodes -= 1
        return rollout

    async def open_sessions(self) -> int:
        """Return the number of sessions open in all adapters."""
        counts = await asyncio.gather(
            *(remote(w.process, RolloutWorker.open_sessions)() for w in self._workers if w.ready)
        )
        return sum(counts)

    async def stop(self) -> None:
        """Stop all workers."""
        self._stopping = True
        workers = self._workers
        await stop([w.process for w in workers if w.ready], [w.process for w in workers if not w.ready])

    async def _keep(self, worker: _Worker) -> None:
        while (lost := await self._live(worker)) is not None and not self._stopping:
            worker.ready = False
            log.warning("%s is down: %s", worker.name, lost)
            if not worker.limit.allows(time.monotonic()):
                self._run_state.end(InfraError(worker.limit.message(worker.name, lost)))
                return
            worker.process.kill()
            worker.process = self._make(worker.number)
            worker.life += 1
            worker.episodes = 0

    async def _live(self, worker: _Worker) -> BaseException | None:
        """Serve until the process exits. Return the error if it was lost."""
        ended: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as life:
                worker.told = self._replicas()
                telling = life.create_task(self._tell(worker))
                await remote(worker.process, RolloutWorker.serve)(worker.told, self._model_folder)
                telling.cancel()
        except* LostActorError as lost:
            ended = lost.exceptions[0]
        return ended

    async def _tell(self, worker: _Worker) -> None:
        """Wait until the worker is ready, then send it every change of the policy servers."""
        await remote(worker.process, RolloutWorker.ready)()
        worker.ready = True
        self._run_state.changed()
        while True:
            await self._run_state.until(lambda: self._replicas() != worker.told)
            worker.told = self._replicas()
            await remote(worker.process, RolloutWorker.renew)(worker.told)
