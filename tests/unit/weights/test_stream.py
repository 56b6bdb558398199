"""Buckets, and broadcasts between two ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._C._distributed_c10d import TCPStore

from rl_agent.errors import ConfigError, WeightPushError
from rl_agent.weights.buckets import TensorInfo, bucket_bytes, pack, plan_buckets, unpack
from rl_agent.weights.stream import GlooConfig, GlooSender, NcclConfig, broadcast, gloo_group, nccl_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rl_agent.weights.base import WeightUpdate

DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.uint8])
SHAPES = st.lists(st.integers(1, 5), min_size=0, max_size=3).map(tuple)


def infos(specs: list[tuple[torch.dtype, tuple[int, ...]]]) -> list[TensorInfo]:
    return [TensorInfo(name=f"t{n}", dtype=dtype, shape=shape) for n, (dtype, shape) in enumerate(specs)]


def values(tensors: list[TensorInfo], device: str = "cpu") -> dict[str, torch.Tensor]:
    return {t.name: (torch.rand(t.shape) * 100).to(t.dtype).to(device) for t in tensors}


@given(st.lists(st.tuples(DTYPES, SHAPES), max_size=12), st.integers(1, 300))
def test_tensors_come_out_of_buckets_as_they_went_in(
    specs: list[tuple[torch.dtype, tuple[int, ...]]], limit: int
) -> None:
    tensors = [TensorInfo.from_json(tensor.as_json()) for tensor in infos(specs)]
    sent = values(tensors)
    coming, received = iter(sent.items()), {}
    for bucket in plan_buckets(tensors, limit):
        assert len(bucket) == 1 or bucket_bytes(bucket) <= limit
        buffer = torch.empty(bucket_bytes(bucket), dtype=torch.uint8)
        pack(buffer, bucket, coming)
        received |= dict(unpack(buffer, bucket))
    assert list(received) == list(sent)
    assert all(torch.equal(received[name], sent[name]) for name in sent)


@pytest.mark.parametrize("come", [{}, {"other": torch.zeros(2)}, {"t0": torch.zeros(3)}, {"t0": torch.zeros(2).half()}])
def test_other_tensors_than_were_announced_are_refused(come: dict[str, torch.Tensor]) -> None:
    (bucket,) = plan_buckets(infos([(torch.float32, (2,))]), 100)
    with pytest.raises(ValueError, match="t0"):
        pack(torch.empty(8, dtype=torch.uint8), bucket, iter(come.items()))


def receive(update: WeightUpdate, make: Callable[..., Any], device: str) -> dict[str, torch.Tensor]:
    """What the engine's half does, without an engine."""
    meeting = update.init_info
    timeout = timedelta(seconds=meeting["timeout_s"])
    store = TCPStore(meeting["host"], meeting["port"], is_master=False, timeout=timeout)
    group = make(store, 1, meeting["ranks"], timeout)
    received = {}
    tensors = [TensorInfo.from_json(value) for value in update.update_info["tensors"]]
    for bucket in plan_buckets(tensors, update.update_info["bucket_bytes"]):
        buffer = torch.empty(bucket_bytes(bucket), dtype=torch.uint8, device=device)
        broadcast(group, buffer)
        received |= dict(unpack(buffer, bucket))
    return received


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[GlooSender]:
    made = GlooConfig(host="127.0.0.1", port=0, bucket_mb=1, timeout_s=5.0).build()
    made.open(tmp_path, receivers=1)
    yield made
    made.close()


def test_what_is_broadcast_arrives_bit_for_bit(sender: GlooSender) -> None:
    tensors = infos([(torch.float32, (700, 300)), (torch.bfloat16, (2, 3)), (torch.float32, ())])
    sent = values(tensors)
    update = sender.announce(tensors, 3)
    with ThreadPoolExecutor(1) as engine:
        received = engine.submit(receive, update, gloo_group, "cpu")
        assert sender.send(sent.items(), 3) is None
        assert all(torch.equal(tensor, sent[name]) for name, tensor in received.result(timeout=30).items())


def test_a_sender_that_nobody_meets_fails_in_time_and_says_which_weights(sender: GlooSender) -> None:
    tensors = infos([(torch.float32, (2,))])
    sender.announce(tensors, 7)
    with pytest.raises(WeightPushError, match="weights number 7"):
        sender.send(values(tensors).items(), 7)


def test_a_bucket_of_nothing_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="bucket_mb"):
        GlooConfig(host="127.0.0.1", port=0, bucket_mb=0, timeout_s=5.0).build()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_what_is_broadcast_between_gpus_arrives_bit_for_bit(tmp_path: Path) -> None:
    sender = NcclConfig(host="127.0.0.1", port=0, bucket_mb=1, timeout_s=60.0).build()
    sender.open(tmp_path, receivers=1)
    tensors = infos([(torch.float32, (700, 300)), (torch.bfloat16, (2, 3))])
    sent = values(tensors, "cuda:0")
    update = sender.announce(tensors, 1)
    with ThreadPoolExecutor(1) as engine:
        received = engine.submit(receive, update, nccl_group, "cuda:1")
        sender.send(sent.items(), 1)
        assert all(torch.equal(tensor.cpu(), sent[name].cpu()) for name, tensor in received.result(timeout=60).items())
    sender.close()
