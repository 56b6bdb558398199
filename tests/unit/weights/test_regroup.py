"""Weights are broadcast to the workers of several engines, and to others after one of them was lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._C._distributed_c10d import TCPStore

from rl_agent.errors import ConfigError, WeightPushError
from rl_agent.weights.buckets import TensorInfo, bucket_bytes, plan_buckets, unpack
from rl_agent.weights.disk import DiskConfig
from rl_agent.weights.ipc import IpcConfig
from rl_agent.weights.stream import GlooConfig, GlooSender, broadcast, gloo_group, own_address

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.weights.base import WeightUpdate

TENSORS = {"a": torch.arange(6, dtype=torch.float32), "b": torch.ones(3, dtype=torch.bfloat16)}
INFOS = [TensorInfo(name=name, dtype=tensor.dtype, shape=tuple(tensor.shape)) for name, tensor in TENSORS.items()]


class Engine:
    """The receiving half, one worker: it meets the sender when told of another meeting point, as vLLM's client does."""

    def __init__(self, first_rank: int) -> None:
        self.first_rank = first_rank
        self.met: Any = None
        self.group: Any = None

    def receive(self, update: WeightUpdate) -> dict[str, torch.Tensor]:
        meeting = update.init_info
        if self.met != meeting:
            timeout = timedelta(seconds=meeting["timeout_s"])
            store = TCPStore(meeting["host"], meeting["port"], is_master=False, timeout=timeout)
            self.group, self.met = gloo_group(store, self.first_rank, meeting["ranks"], timeout), meeting
        received: dict[str, torch.Tensor] = {}
        for bucket in plan_buckets(INFOS, update.update_info["bucket_bytes"]):
            buffer = torch.empty(bucket_bytes(bucket), dtype=torch.uint8)
            broadcast(self.group, buffer)
            received |= dict(unpack(buffer, bucket))
        return received


def pushed(sender: GlooSender, engines: list[Engine], version: int) -> None:
    """Every engine has every tensor."""
    update = sender.announce(INFOS, version)
    with ThreadPoolExecutor(len(engines)) as pool:
        receiving = [pool.submit(engine.receive, update) for engine in engines]
        sender.send(TENSORS.items(), version)
        for one in receiving:
            received = one.result(timeout=30)
            assert all(torch.equal(received[name], tensor) for name, tensor in TENSORS.items())


def test_two_engines_receive_then_one_is_lost_then_another_comes(tmp_path: Path) -> None:
    sender: GlooSender = GlooConfig(bucket_mb=1, timeout_s=10.0).build()
    sender.open(tmp_path, receivers=2)
    first, second = Engine(1), Engine(2)
    for version in (1, 2):
        pushed(sender, [first, second], version)
    second.group = None  # it is gone
    sender.regroup(1)
    pushed(sender, [first], 3)
    sender.regroup(2)
    pushed(sender, [first, Engine(2)], 4)
    sender.close()


def test_a_sender_whose_receiver_is_gone_fails_and_can_be_regrouped(tmp_path: Path) -> None:
    sender: GlooSender = GlooConfig(bucket_mb=1, timeout_s=2.0).build()
    sender.open(tmp_path, receivers=2)
    sender.announce(INFOS, 1)
    with pytest.raises(WeightPushError, match="weights number 1"):
        sender.send(TENSORS.items(), 1)  # nobody comes
    sender.regroup(1)
    pushed(sender, [Engine(1)], 2)
    sender.close()


def test_who_reads_from_disk_needs_no_group_and_shared_buffers_reach_one_engine_only(tmp_path: Path) -> None:
    disk: Any = DiskConfig().build()
    disk.open(tmp_path, receivers=1)
    disk.regroup(7)
    ipc: Any = IpcConfig().build()
    ipc.regroup(1)
    with pytest.raises(ConfigError, match="one worker"):
        ipc.regroup(2)


def test_the_own_address_is_that_on_the_way_to_the_other() -> None:
    assert own_address("127.0.0.1") == "127.0.0.1"
