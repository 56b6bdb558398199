"""Brings a run's processes up on Ray, and takes them down again whatever happens."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import ray

from rl_agent.cluster.calls import result
from rl_agent.cluster.policy_server import PolicyServer
from rl_agent.cluster.reaper import reaped
from rl_agent.cluster.rollout_worker import RolloutWorker
from rl_agent.cluster.trainer_rank import TrainerRank
from rl_agent.errors import InfraError
from rl_agent.secrets import set_for_children

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from rl_agent.algo.batch import TrainBatch
    from rl_agent.algo.scores import Need, Scores
    from rl_agent.config.schema import Config
    from rl_agent.rollout.group import EpisodeRequest, Rollout
    from rl_agent.run_folder import RunFolder
    from rl_agent.tokens.turn import Float32, Int32
    from rl_agent.trainer.base import StepResult
    from rl_agent.weights.base import Probe, WeightUpdate

log = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 30.0
SAVE_POLL_S: Final = 0.2
"""Between questions to the ranks whether their files are written."""
CALLS_AT_ONCE: Final = 4096
"""Of one async actor; the scheduler sets the real bound."""


class Trainers:
    """All ranks of the trainer, called together; rank 0 answers."""

    def __init__(self, ranks: Sequence[Any]) -> None:
        self._ranks = ranks

    async def _all(self, method: str, *arguments: Any) -> Any:
        calls = [
            result(getattr(rank, method).remote(*arguments), f"trainer rank {i}") for i, rank in enumerate(self._ranks)
        ]
        return (await asyncio.gather(*calls))[0]

    async def start(self, model_folder: Path) -> None:
        """Build the model on every rank."""
        await self._all("start", model_folder)

    async def logprobs(self, sequences: Sequence[Int32]) -> list[Float32]:
        """Log-probability of each next token."""
        found: list[Float32] = await self._all("logprobs", sequences)
        return found

    async def score(self, batch: TrainBatch, needs: frozenset[Need]) -> Scores:
        """What the batch lacks of `needs`."""
        scores: Scores = await self._all("score", batch, needs)
        return scores

    async def step(self, batch: TrainBatch) -> StepResult:
        """Train on one batch."""
        done: StepResult = await self._all("step", batch)
        return done

    async def announce(self, version: int, probe_tokens: Int32) -> tuple[WeightUpdate | None, Probe]:
        """What the engine has to know before the weights are sent, if anything, and the probe by which it is checked."""
        announced: tuple[WeightUpdate | None, Probe] = await self._all("announce", version, probe_tokens)
        return announced

    async def push(self, version: int) -> WeightUpdate | None:
        """Send the weights; what the engine has to know to fetch them, if it has to."""
        sent: WeightUpdate | None = await self._all("push", version)
        return sent

    async def begin_save(self, folder: Path) -> None:
        """Copy what a checkpoint holds; it is written while other calls go on."""
        await self._all("begin_save", folder)

    async def finish_save(self) -> None:
        """Wait until every rank has written its part of the checkpoint. Raises InfraError if one could not."""
        written = await self._all("finish_save")
        while not written:
            await asyncio.sleep(SAVE_POLL_S)
            written = await self._all("finish_save")

    async def renumber(self, version: int) -> None:
        """Say which number the current weights have, where nobody samples with them."""
        await self._all("renumber", version)

    async def load(self, folder: Path) -> None:
        """Continue from a checkpoint."""
        await self._all("load", folder)

    async def export(self, folder: Path) -> None:
        """Write a Hugging Face folder."""
        await self._all("export", folder)


class Cluster:
    """The processes of a run, as the jobs use them."""

    def __init__(self, trainers: Trainers, server: Any, workers: Sequence[Any]) -> None:
        self.trainers = trainers
        self._server = server
        self._workers = workers
        self._turn = itertools.cycle(range(max(1, len(workers))))

    async def run_episode(self, request: EpisodeRequest) -> Rollout:
        """Run one episode on the next worker."""
        number = next(self._turn)
        rollout: Rollout = await result(self._workers[number].run.remote(request), f"rollout worker {number}")
        return rollout

    async def push(self, version: int, probe_tokens: Int32) -> float:
        """Bring the trainer's weights into the engine as `version`, verified; returns the probe's largest difference."""
        announced, probe = await self.trainers.announce(version, np.asarray(probe_tokens, dtype=np.int32))
        if announced is None:
            return await self._receive(await self.trainers.push(version), probe)
        try:
            async with asyncio.TaskGroup() as halves:
                halves.create_task(self.trainers.push(version))
                received = halves.create_task(self._receive(announced, probe))
        except* InfraError as failed:
            # whichever half failed first: the other one was left alone
            raise failed.exceptions[0] from None
        return received.result()

    async def _receive(self, update: WeightUpdate | None, probe: Probe) -> float:
        return float(await result(self._server.push.remote(update, probe), "the policy server"))

    async def watch(self) -> None:
        """Raises when the engine dies by itself."""
        await result(self._server.watch.remote(), "the policy server")


@asynccontextmanager
async def trainers(config: Config, folder: RunFolder, model_folder: Path) -> AsyncIterator[Trainers]:
    """Only the trainer (job=sft)."""
    async with _ray(config):
        yield await _start_trainers(config, folder, model_folder)


@asynccontextmanager
async def cluster(
    config: Config, folder: RunFolder, model_folder: Path, weight_backend: str, *, trains: bool = True
) -> AsyncIterator[Cluster]:
    """Trainer, policy server and rollout workers. The server starts while the trainer builds its model.

    Without `trains` there is no trainer: the engine keeps the weights of `model_folder` (job=rollout, job=evaluate).
    """
    async with _ray(config):
        server = _actor(PolicyServer, gpus=config.cluster.engine_gpus, at_once=CALLS_AT_ONCE).remote(config, folder)
        worker = _actor(RolloutWorker, cpus=config.cluster.cpus_per_worker, at_once=CALLS_AT_ONCE)
        workers = [worker.remote(config, folder, number) for number in range(config.cluster.rollout_workers)]
        try:
            async with _time_limit(config.cluster.start_timeout_s), asyncio.TaskGroup() as starting:
                address = starting.create_task(
                    result(server.start.remote(model_folder, weight_backend), "the policy server")
                )
                ranks = starting.create_task(_start_trainers(config, folder, model_folder)) if trains else None
            async with asyncio.TaskGroup() as serving:
                for number, handle in enumerate(workers):
                    serve = handle.serve.remote(address.result(), model_folder)
                    serving.create_task(result(serve, f"rollout worker {number}"))
                async with _time_limit(config.cluster.start_timeout_s):
                    await asyncio.gather(*(result(handle.ready.remote(), "a rollout worker") for handle in workers))
                yield Cluster(ranks.result() if ranks else Trainers([]), server, workers)
                await _stop(workers)
        finally:
            await _stop([*workers, server])


@asynccontextmanager
async def _time_limit(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise InfraError(f"the run's processes were not up after cluster.start_timeout_s={seconds:.0f} s") from None


async def _start_trainers(config: Config, folder: RunFolder, model_folder: Path) -> Trainers:
    layout = config.trainer
    world = layout.data_parallel * layout.tensor_parallel * layout.pipeline_parallel * layout.context_parallel
    port = _free_port() if world > 1 else 0
    rank = _actor(TrainerRank, gpus=config.cluster.trainer_gpus)
    handles = [rank.remote(config, folder, rank=number, world_size=world, master_port=port) for number in range(world)]
    started = Trainers(handles)
    await started.start(model_folder)
    return started


def _actor(kind: type, *, cpus: float = 0.0, gpus: float = 0.0, at_once: int | None = None) -> Any:
    """A Ray actor of a plain class. `at_once`: for async classes, how many calls run at the same time."""
    more = {} if at_once is None else {"max_concurrency": at_once}
    return ray.remote(kind).options(num_cpus=cpus, num_gpus=gpus, max_restarts=0, **more)


@asynccontextmanager
async def _ray(config: Config) -> AsyncIterator[None]:
    set_for_children("RAY_USAGE_STATS_ENABLED", "0")
    set_for_children("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    set_for_children("RAY_worker_niceness", "0")  # Ray's 15 would put the trainer behind the agents' own processes
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)  # a note on tokens at every start
    local: dict[str, Any] = {"num_cpus": 2, "include_dashboard": False} if config.cluster.address is None else {}
    async with reaped():
        ray.init(
            address=config.cluster.address,
            log_to_driver=False,
            logging_level=logging.WARNING,
            configure_logging=False,
            **local,
        )
        try:
            yield
        finally:
            ray.shutdown()


async def _stop(handles: Sequence[Any]) -> None:
    """Let each actor end what it started; one that does not is killed by `ray.shutdown` with its process tree."""
    for handle in handles:
        with suppress(InfraError, TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await result(handle.stop.remote(), "an actor")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
