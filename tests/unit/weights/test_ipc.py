"""Buffers that two processes on one GPU share."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import pytest
import torch

from rl_agent.errors import ConfigError
from rl_agent.weights.buckets import TensorInfo, plan_buckets, unpack
from rl_agent.weights.ipc import IpcConfig, see

if TYPE_CHECKING:
    from pathlib import Path


def test_an_engine_on_other_gpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tensor_parallel is 2.*weights=nccl"):
        IpcConfig(bucket_mb=1).build().open(tmp_path, receivers=2)


def receive(info: dict[str, Any]) -> dict[str, torch.Tensor]:
    """What the engine's half does, without an engine."""
    tensors = [TensorInfo.from_json(value) for value in info["tensors"]]
    received = {}
    for bucket, handle in zip(plan_buckets(tensors, info["bucket_bytes"]), info["handles"], strict=True):
        received |= {name: tensor.cpu() for name, tensor in unpack(see(handle, torch.device("cuda", 0)), bucket)}
    return received


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_another_process_sees_what_is_shared_bit_for_bit(tmp_path: Path) -> None:
    sender = IpcConfig(bucket_mb=1).build()
    sender.open(tmp_path, receivers=1)
    shapes = {"a": (700, 300), "b": (2, 3)}
    tensors = {name: torch.rand(shape, device="cuda") for name, shape in shapes.items()}
    sender.announce([TensorInfo(name=n, dtype=torch.float32, shape=s) for n, s in shapes.items()], 1)
    update = sender.send(tensors.items(), 1)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as engine:
        received = engine.submit(receive, dict(update.update_info)).result(timeout=120)
    assert all(torch.equal(received[name], tensor.cpu()) for name, tensor in tensors.items())
    sender.close()
