"""A trainer that is killed between two buckets: what receives is not left waiting. Both ends are processes, over gloo."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._C._distributed_c10d import TCPStore

from rl_agent.weights.buckets import TensorInfo, bucket_bytes, plan_buckets
from rl_agent.weights.stream import GlooConfig, broadcast, gloo_group

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from rl_agent.weights.base import WeightUpdate

TENSORS = [TensorInfo(name=f"t{n}", dtype=torch.float32, shape=(200_000,)) for n in range(3)]
"""Of 800 kB each: with buckets of 1 MB, a bucket each."""
TIMEOUT_S = 60.0


def send_until_killed(end: Connection) -> None:
    """A trainer whose second tensor never comes."""
    sender = GlooConfig(host="127.0.0.1", port=0, bucket_mb=1, timeout_s=TIMEOUT_S).build()
    sender.open(Path("unused"), receivers=1)
    end.send(sender.announce(TENSORS, 5))

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        yield TENSORS[0].name, torch.ones(TENSORS[0].shape)
        end.send("the first bucket is out")
        end.recv()

    sender.send(tensors(), 5)


def receive(update: WeightUpdate, arrived: list[torch.Tensor]) -> None:
    """What the engine's half does, without an engine."""
    meeting = update.init_info
    timeout = timedelta(seconds=meeting["timeout_s"])
    store = TCPStore(meeting["host"], meeting["port"], is_master=False, timeout=timeout)
    group: Any = gloo_group(store, 1, meeting["ranks"], timeout)
    for bucket in plan_buckets(TENSORS, update.update_info["bucket_bytes"]):
        buffer = torch.empty(bucket_bytes(bucket), dtype=torch.uint8)
        broadcast(group, buffer)
        arrived.append(buffer)


def test_a_sender_killed_between_two_buckets_ends_the_receiver_with_an_error() -> None:
    ours, theirs = get_context("spawn").Pipe()
    trainer = get_context("spawn").Process(target=send_until_killed, args=(theirs,), daemon=True)
    trainer.start()
    theirs.close()
    arrived: list[torch.Tensor] = []
    try:
        with ThreadPoolExecutor(1) as engine:
            receiving = engine.submit(receive, ours.recv(), arrived)
            assert ours.recv() == "the first bucket is out"
            trainer.kill()
            with pytest.raises(RuntimeError):
                receiving.result(timeout=2 * TIMEOUT_S)
    finally:
        trainer.kill()
        trainer.join()
        trainer.close()
        ours.close()
    assert len(arrived) == 1
    assert torch.equal(arrived[0].view(torch.float32), torch.ones(TENSORS[0].shape))
