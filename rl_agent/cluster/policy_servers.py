"""All replicas of the policy server.

Weights go to all of them, and a lost replica is restarted with the current weights. A replica serves from the moment
that the probe has verified its current version until it is lost. Weights that replicas fetch (disk, ipc) are kept for
restarted replicas. Weights that are sent (gloo, nccl) are sent to a restarted replica again, or with the next push if
the trainer already has newer ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rl_agent.cluster.calls import remote, stop
from rl_agent.cluster.policy_server import PolicyServer
from rl_agent.cluster.run_state import RestartLimit
from rl_agent.config.engine import UpdateMode
from rl_agent.engine.base import EngineLoad, total_load
from rl_agent.engine.replicas import ReplicaSet
from rl_agent.errors import InfraError, WeightPushError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from pathlib import Path

    from rl_agent.cluster.calls import RemoteProcess
    from rl_agent.cluster.run_state import RunState
    from rl_agent.cluster.trainer_ranks import Trainers
    from rl_agent.config.schema import Config
    from rl_agent.tokens.turn import Int32
    from rl_agent.weights.base import Probe, WeightUpdate

log = logging.getLogger(__name__)
LOSS_GRACE_S: Final = 10.0
"""Time in which a failed push is attributed to a replica that is found dead."""


@dataclass(slots=True, eq=False)
class _Replica:
    number: int
    process: RemoteProcess
    limit: RestartLimit
    life: int = 0
    """Number of restarts."""
    url: str | None = None
    """None while it is down."""
    serving: bool = False
    difference: float = 0.0
    """Largest difference on the probe of its weights."""

    @property
    def name(self) -> str:
        return f"policy server {self.number}"


class PolicyServers:
    """All replicas of the policy server. `make(n)` starts the process of replica `n`."""

    def __init__(
        self,
        config: Config,
        *,
        make: Callable[[int], RemoteProcess],
        trainers: Trainers,
        run_state: RunState,
        model_folder: Path,
        weight_backend: str,
    ) -> None:
        cluster = config.cluster
        self._make = make
        self._trainers = trainers
        self._run_state = run_state
        self._start_arguments = (model_folder, weight_backend)
        self._start_timeout_s = cluster.start_timeout_s
        self._workers = config.engine.tensor_parallel
        self._keeps_cache = config.engine.update_mode is UpdateMode.keep
        self._replicas = [
            _Replica(n, make(n), RestartLimit(cluster.max_restarts, cluster.restart_window_s))
            for n in range(cluster.engine_replicas)
        ]
        self._turn = asyncio.Lock()
        self._version: int | None = None
        self._probe_tokens: Int32 = np.zeros(0, dtype=np.int32)
        self._fetchable: tuple[WeightUpdate, Probe] | None = None
        self._streams = False
        self._group: Mapping[_Replica, int] = {}
        """Members of the trainer's send group -> their number of restarts when they joined."""

    @property
    def set(self) -> ReplicaSet:
        """Addresses of the serving replicas."""
        addresses = tuple(replica.url if replica.serving else None for replica in self._replicas)
        return ReplicaSet(addresses=addresses, version=self._version if self._keeps_cache else None)

    @property
    def restarts(self) -> int:
        """Number of restarts of all replicas."""
        return sum(replica.life for replica in self._replicas)

    async def start(self) -> None:
        """Start all replicas. The first push of the run brings them the trainer's weights."""
        async with asyncio.TaskGroup() as starting:
            for replica in self._replicas:
                starting.create_task(self._start(replica))
        for replica in self._replicas:
            replica.serving = True

    async def serving(self) -> None:
        """Wait until a replica serves. Raises the error that ends the run."""
        await self._run_state.until(lambda: any(replica.serving for replica in self._replicas))

    async def supervise(self) -> None:
        """Restart lost replicas until cancelled."""
        async with asyncio.TaskGroup() as keeping:
            for replica in self._replicas:
                keeping.create_task(self._keep(replica))

    async def push(self, version: int, probe_tokens: Int32) -> float:
        """Push the trainer's weights to every replica, verify them, and return the probe's largest difference.

        A replica that is lost meanwhile gets the weights when it is restarted. Raises WeightPushError if the push fails
        without a lost replica.
        """
        async with self._turn:
            members = [replica for replica in self._replicas if replica.url is not None]
            self._version, self._probe_tokens = version, probe_tokens
            await self._bring(members)
        await self.serving()
        return max(replica.difference for replica in self._replicas if replica.serving)

    async def load(self) -> EngineLoad:
        """Return the total load of the serving replicas."""
        serving = [replica for replica in self._replicas if replica.serving]
        loads = await asyncio.gather(*(remote(r.process, PolicyServer.load)() for r in serving), return_exceptions=True)
        if bugs := [found for found in loads if isinstance(found, Exception) and not isinstance(found, InfraError)]:
            raise bugs[0]
        return total_load(found for found in loads if isinstance(found, EngineLoad))

    async def sleep(self) -> None:
        """Release GPU memory for the trainer."""
        await self._all(PolicyServer.sleep)

    async def wake(self) -> None:
        """Reallocate GPU memory after `sleep`."""
        await self._all(PolicyServer.wake)

    async def stop(self) -> None:
        """Stop all replicas."""
        replicas = self._replicas
        await stop([r.process for r in replicas if r.url is not None], [r.process for r in replicas if r.url is None])

    async def _all(self, method: Callable[[PolicyServer], Coroutine[Any, Any, None]]) -> None:
        await asyncio.gather(*(remote(r.process, method)() for r in self._replicas if r.url is not None))

    async def _start(self, replica: _Replica) -> None:
        replica.url = await remote(replica.process, PolicyServer.start)(*self._start_arguments)

    async def _keep(self, replica: _Replica) -> None:
        """Restart the process whenever it exits."""
        while True:
            try:
                await remote(replica.process, PolicyServer.watch)()
            except InfraError as error:
                reason: InfraError | None = error
            else:
                return
            while reason is not None:
                replica.url, replica.serving = None, False
                self._run_state.changed()
                log.warning("%s is down: %s", replica.name, reason)
                if not replica.limit.allows(time.monotonic()):
                    self._run_state.end(InfraError(replica.limit.message(replica.name, reason)))
                    return
                reason = await self._start_again(replica)

    async def _start_again(self, replica: _Replica) -> InfraError | None:
        """Restart a replica with the current weights. Return the error if that fails."""
        replica.process.kill()
        replica.process = self._make(replica.number)
        replica.life += 1
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await self._start(replica)
            async with self._turn:
                await self._catch_up(replica)
        except InfraError as error:
            return error
        except TimeoutError:
            return InfraError(f"not up after cluster.start_timeout_s={self._start_timeout_s:.0f} s")
        log.warning("%s is back at %s, with weights number %s", replica.name, replica.url, self._version)
        self._run_state.changed()
        return None

    async def _catch_up(self, replica: _Replica) -> None:
        if replica.serving:
            return  # a push has reached the replica meanwhile
        if self._version is None:
            replica.serving = True
        elif self._fetchable is not None:
            update, probe = self._fetchable
            replica.difference = await remote(replica.process, PolicyServer.push)(update, probe)
            replica.serving = True
        else:
            # No step may run in between. The wait is bounded, since both sides of a push have the backend's time limit.
            async with self._trainers.turn:
                if not self._trainers.ahead:
                    await self._bring([replica])
                # otherwise the trainer has newer weights than the replicas, and the next push includes this one

    async def _bring(self, members: Sequence[_Replica]) -> None:
        """Push the trainer's current weights to `members`."""
        assert self._version is not None
        if self._streams:
            members = await self._held(members)
        group = {member: member.life for member in members}
        if group and group != self._group:
            await self._trainers.regroup(len(members) * self._workers)
            self._group = group
        announced, probe = await self._trainers.announce(self._version, self._probe_tokens)
        self._streams = announced is not None
        if announced is None:
            update = await self._trainers.push(self._version)
            assert update is not None, "the sender neither announced the weights nor returned how to fetch them"
            self._fetchable = update, probe
            await self._fetch(group, update, probe)
        elif members:
            await self._send(group, announced, probe)
        self._run_state.changed()

    async def _held(self, members: Sequence[_Replica]) -> list[_Replica]:
        """Pause the members and return those that are paused. Otherwise the sender would wait for the longest reply."""
        held: list[_Replica] = []

        async def one(member: _Replica) -> None:
            life = member.life
            try:
                await remote(member.process, PolicyServer.hold)()
                held.append(member)
            except InfraError as error:
                if not await self._is_lost({member: life}):
                    raise WeightPushError(f"{member.name} could not be paused: {error}") from error

        await self._together(one(member) for member in members)
        return [member for member in members if member in held and member.url is not None]

    async def _fetch(self, group: Mapping[_Replica, int], update: WeightUpdate, probe: Probe) -> None:
        """Let each member fetch the weights on its own, so that a lost one does not delay the others."""

        async def one(member: _Replica) -> None:
            try:
                self._has(member, group, await remote(member.process, PolicyServer.push)(update, probe))
            except InfraError:
                if not await self._is_lost({member: group[member]}):
                    raise

        await self._together(one(member) for member in group)

    async def _send(self, group: Mapping[_Replica, int], announced: WeightUpdate, probe: Probe) -> None:
        """Send the weights to all members at once.

        A lost member breaks the update of the others, so these are restarted too.
        """
        assert self._version is not None

        async def receive(member: _Replica, first_rank: int) -> None:
            meeting = {**announced.init_info, "first_rank": first_rank}
            update = replace(announced, init_info=meeting)
            self._has(member, group, await remote(member.process, PolicyServer.push)(update, probe))

        halves: list[Coroutine[Any, Any, Any]] = [self._trainers.push(self._version)]
        halves += [receive(member, 1 + place * self._workers) for place, member in enumerate(group)]
        try:
            await self._together(halves)
        except InfraError:
            self._group = {}
            if self._trainers.lost or not await self._is_lost(group):
                raise
            for member in group:
                if not _is_gone(member, group):
                    member.process.kill()

    async def _together(self, parts: Iterable[Coroutine[Any, Any, Any]]) -> None:
        """Run all parts. The first failure cancels the others and is raised."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in parts:
                    tasks.create_task(part)
        except* InfraError as failed:
            # the first failure; the others were cancelled
            raise failed.exceptions[0] from None

    def _has(self, member: _Replica, group: Mapping[_Replica, int], difference: float) -> None:
        """Record that a member has the current weights, verified."""
        if not _is_gone(member, group):
            member.difference, member.serving = difference, True

    async def _is_lost(self, group: Mapping[_Replica, int]) -> bool:
        """Return whether a member is lost, or is found lost within LOSS_GRACE_S.

        The failure is then attributed to it.
        """
        try:
            async with asyncio.timeout(LOSS_GRACE_S):
                await self._run_state.until(lambda: any(_is_gone(member, group) for member in group))
        except TimeoutError:
            return False
        return True


def _is_gone(member: _Replica, group: Mapping[_Replica, int]) -> bool:
    """Return whether the process of the member has exited since it joined `group`."""
    return member.url is None or member.life != group[member]
