"""The replicas of the policy server, with processes and a trainer of which everything is known."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from rl_agent.cluster.calls import LostActorError
from rl_agent.cluster.policy_servers import PolicyServers
from rl_agent.cluster.run_state import RunState
from rl_agent.config.engine import UpdateMode
from rl_agent.engine.base import EngineLoad
from rl_agent.errors import EngineError, InfraError, WeightPushError
from rl_agent.weights.base import Probe, WeightUpdate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOKENS = np.arange(3, dtype=np.int32)


class Trainer:
    """Numbers its weights by steps. `streams`: weights are sent to a group, whose members must all take part."""

    def __init__(self, *, streams: bool) -> None:
        self.streams = streams
        self.turn = asyncio.Lock()
        self.ahead = self.lost = False
        self.weights = 0
        self.groups: list[int] = []
        self.joined = 0
        self.all_joined = asyncio.Event()
        self.idle = asyncio.Event()
        """Whether nothing else is before a regrouping, such as an export."""
        self.idle.set()
        self.asked_to_regroup = asyncio.Event()

    def step(self) -> None:
        self.weights += 1
        self.ahead = True

    async def regroup(self, receivers: int) -> None:
        self.asked_to_regroup.set()
        await self.idle.wait()
        self.groups.append(receivers)

    async def announce(self, version: int, probe_tokens: Any) -> tuple[WeightUpdate | None, Probe]:
        self.ahead = False
        self.joined, self.all_joined = 0, asyncio.Event()
        probe = Probe(tokens=probe_tokens, logprobs=np.zeros(2, dtype=np.float32))
        update = WeightUpdate(version=version, update_info={"weights": self.weights}, init_info={"host": "h"})
        return (update if self.streams else None), probe

    async def push(self, version: int) -> WeightUpdate | None:
        if not self.streams:
            return WeightUpdate(version=version, update_info={"weights": self.weights})
        try:
            async with asyncio.timeout(0.5):
                await self.all_joined.wait()
        except TimeoutError:
            raise WeightPushError("the receivers did not come") from None
        return None

    async def receive(self) -> None:
        self.joined += 2  # its two workers
        if self.joined == self.groups[-1]:
            self.all_joined.set()
        await self.all_joined.wait()


class Server:
    """One life of one replica."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.dead = asyncio.Event()
        self.weights = -1
        self.version: int | None = None
        self.first_rank: int | None = None
        self.fails_push: Exception | None = None
        self.dies_in_push = False
        self.calls: list[str] = []

    async def call(self, method: str, *arguments: Any, ends: bool = False) -> Any:
        self.calls.append(method)
        work = asyncio.ensure_future(getattr(self, method)(*arguments))
        death = asyncio.ensure_future(self.dead.wait())
        await asyncio.wait([work, death], return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        if work.done():
            return work.result()
        work.cancel()
        raise LostActorError(f"server {self.number} is gone")

    def kill(self) -> None:
        self.dead.set()

    async def start(self, model_folder: Path, weight_backend: str) -> str:
        await asyncio.sleep(0.01)
        await self.world.room.wait()
        if self.world.broken:
            raise EngineError("it does not start")
        return f"address {self.number}.{len(self.world.lives[self.number])}"

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def hold(self) -> None:
        pass

    async def push(self, update: WeightUpdate, probe: Probe) -> float:
        if self.fails_push is not None:
            raise self.fails_push
        if self.dies_in_push:
            asyncio.get_running_loop().call_later(0.01, self.kill)
            await asyncio.Event().wait()
        if self.world.trainer.streams:
            self.first_rank = update.init_info["first_rank"]
            await self.world.trainer.receive()
        self.version, self.weights = update.version, update.update_info["weights"]
        return 0.25

    async def load(self) -> EngineLoad:
        return EngineLoad(kv_cache_usage=0.1 * (1 + self.number), running=2, waiting=1)

    async def stop(self) -> None:
        await self.world.room.wait()

    async def sleep(self) -> None:
        pass

    async def wake(self) -> None:
        pass


class World:
    def __init__(self, *, replicas: int, streams: bool = False, mode: str = "drain", most: int = 3) -> None:
        self.trainer = Trainer(streams=streams)
        self.lives: dict[int, list[Server]] = {n: [] for n in range(replicas)}
        self.broken = False
        self.room = asyncio.Event()
        """Whether there is a node for a server that starts."""
        self.room.set()
        self.run_state = RunState()
        cluster = SimpleNamespace(
            start_timeout_s=5.0, max_restarts=most, restart_window_s=600.0, engine_replicas=replicas
        )
        config = SimpleNamespace(
            cluster=cluster, engine=SimpleNamespace(tensor_parallel=2, update_mode=UpdateMode(mode))
        )
        self.servers = PolicyServers(
            cast("Any", config),
            make=self.make,
            trainers=cast("Any", self.trainer),
            run_state=self.run_state,
            model_folder=Path("model"),
            weight_backend="disk",
        )

    def make(self, number: int) -> Server:
        self.lives[number].append(Server(self, number))
        return self.lives[number][-1]

    def now(self, number: int) -> Server:
        return self.lives[number][-1]

    async def until_serving(self, count: int) -> None:
        async with asyncio.timeout(5):
            await self.run_state.until(lambda: sum(a is not None for a in self.servers.set.addresses) == count)


@asynccontextmanager
async def up(world: World) -> AsyncIterator[PolicyServers]:
    await world.servers.start()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        supervision = tasks.create_task(world.servers.supervise())
        await asyncio.sleep(0)
        yield world.servers
        supervision.cancel()


@pytest.mark.parametrize("streams", [False, True])
async def test_a_push_reaches_every_replica_at_the_same_time_and_each_worker_has_a_rank_of_its_own(
    streams: bool,
) -> None:
    world = World(replicas=3, streams=streams)
    async with up(world) as servers:
        for version in (1, 2):
            world.trainer.step()
            assert await servers.push(version, TOKENS) == 0.25
            assert [world.now(n).weights for n in range(3)] == [version] * 3
    if streams:
        assert [world.now(n).first_rank for n in range(3)] == [1, 3, 5]  # two workers each
    assert world.trainer.groups == [6]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_replica_that_dies_comes_back_with_the_weights_of_now_before_it_serves(streams: bool) -> None:
    world = World(replicas=2, streams=streams)
    async with up(world) as servers:
        world.trainer.step()
        await servers.push(7, TOKENS)
        world.now(0).kill()
        await world.until_serving(1)
        assert servers.set.addresses == (None, "address 1.1")
        await world.until_serving(2)
        assert servers.set.addresses == ("address 0.2", "address 1.1")
        assert (world.now(0).version, world.now(0).weights) == (7, 1)
        assert servers.restarts == 1
        world.trainer.step()
        await servers.push(8, TOKENS)
        assert [world.now(n).version for n in range(2)] == [8, 8]


async def test_a_replica_gets_the_version_of_the_others_and_not_newer_weights_of_the_trainer() -> None:
    world = World(replicas=2)
    async with up(world) as servers:
        world.trainer.step()
        await servers.push(1, TOKENS)
        world.trainer.step()
        world.now(0).kill()
        await world.until_serving(1)
        await world.until_serving(2)
        assert (world.now(0).version, world.now(0).weights) == (1, 1)


async def test_where_weights_are_sent_and_the_trainer_has_newer_ones_a_replica_waits_for_the_next_push() -> None:
    world = World(replicas=2, streams=True)
    async with up(world) as servers:
        world.trainer.step()
        await servers.push(1, TOKENS)
        world.trainer.step()
        world.now(0).kill()
        await world.until_serving(1)
        await asyncio.sleep(0.1)
        assert servers.set.addresses[0] is None
        await servers.push(2, TOKENS)
        assert None not in servers.set.addresses
        assert [world.now(n).weights for n in range(2)] == [2, 2]


async def test_no_step_comes_between_the_look_at_the_trainers_weights_and_the_end_of_their_way_to_a_replica() -> None:
    world = World(replicas=2, streams=True)
    trainer = world.trainer

    async def step() -> None:
        async with trainer.turn:
            trainer.step()

    async with up(world) as servers, asyncio.TaskGroup() as tasks:
        await step()
        await servers.push(1, TOKENS)
        trainer.idle.clear()
        trainer.asked_to_regroup.clear()
        world.now(0).kill()
        await trainer.asked_to_regroup.wait()
        stepping = tasks.create_task(step())
        await asyncio.sleep(0)
        trainer.idle.set()
        await world.until_serving(2)
        assert (world.now(0).version, world.now(0).weights) == (1, 1)
        await stepping
        assert trainer.ahead
        await servers.push(2, TOKENS)
        assert [world.now(n).weights for n in range(2)] == [2, 2]


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_replica_that_dies_in_the_middle_of_a_push_has_the_pushed_weights_when_it_is_back(
    replicas: int, streams: bool
) -> None:
    world = World(replicas=replicas, streams=streams)
    async with up(world) as servers:
        world.trainer.step()
        await servers.push(1, TOKENS)
        world.trainer.step()
        world.now(0).dies_in_push = True
        await servers.push(2, TOKENS)
        await world.until_serving(replicas)
        assert [world.now(n).weights for n in range(replicas)] == [2] * replicas
        assert len(world.lives[0]) == 2


async def test_a_push_that_fails_with_every_replica_alive_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_agent.cluster.policy_servers.LOSS_GRACE_S", 0.05)
    world = World(replicas=2)
    async with up(world) as servers:
        world.now(1).fails_push = WeightPushError("the engine does not run what was trained")
        with pytest.raises(WeightPushError, match="does not run"):
            await servers.push(1, TOKENS)


async def test_with_none_up_episodes_wait_and_a_server_lost_too_often_ends_the_run_with_a_report() -> None:
    world = World(replicas=1, most=2)
    async with up(world) as servers:
        world.broken = True
        world.now(0).kill()
        await world.until_serving(0)
        with pytest.raises(InfraError, match=r"policy server 0 was lost 3 times within 600 s.*it does not start"):
            await servers.serving()


async def test_a_server_that_is_not_up_does_not_hold_up_the_end() -> None:
    world = World(replicas=2)
    async with up(world) as servers:
        world.room.clear()
        world.now(0).kill()
        await world.until_serving(1)
        await asyncio.sleep(0.05)
        assert len(world.lives[0]) == 2  # it is started again, for which there is no room
    ending = asyncio.create_task(servers.stop())
    await asyncio.sleep(0.05)
    assert world.now(0).dead.is_set()
    assert not ending.done()  # the other one is asked
    world.room.set()
    await ending
    assert "stop" in world.now(1).calls


async def test_the_load_is_of_all_replicas_that_serve() -> None:
    world = World(replicas=2)
    async with up(world) as servers:
        assert await servers.load() == EngineLoad(kv_cache_usage=0.2, running=4, waiting=2)


@pytest.mark.parametrize(("mode", "told"), [("drain", None), ("keep", 5)])
async def test_workers_are_told_of_versions_only_where_prefixes_of_older_ones_stay(mode: str, told: int | None) -> None:
    world = World(replicas=1, mode=mode)
    async with up(world) as servers:
        await servers.push(5, TOKENS)
        assert servers.set.version == told
