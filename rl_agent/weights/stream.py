"""The `gloo` and `nccl` backends, trainer's half: weights are broadcast to the engine's workers bucket by bucket.

Nothing is written to disk, and at most one bucket is held twice. The trainer sends while the paused engine receives, so
both halves of a push run at the same time. A half without its counterpart fails after `timeout_s`.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from typing_extensions import override

from rl_agent.config.weights import WeightsConfig
from rl_agent.errors import ConfigError, WeightPushError
from rl_agent.ports import LOOPBACK
from rl_agent.weights.base import WeightUpdate
from rl_agent.weights.buckets import bucket_bytes, pack, plan_buckets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rl_agent.weights.buckets import TensorInfo

SENDER = 0
"""Rank of the trainer in the group that it shares with the engine's workers."""


@dataclass(kw_only=True)
class GlooConfig(WeightsConfig):
    """Broadcast from the trainer's memory to the engine's memory over TCP."""

    backend: ClassVar[str] = "gloo"
    bucket_mb: int = 512
    """Size of one piece of the transfer."""
    port: int = 0
    """0: any free port."""
    timeout_s: float = 300.0
    """Time that each half of a push waits for the other half."""

    @override
    def build(self) -> StreamSender:
        return GlooSender(self)


@dataclass(kw_only=True)
class NcclConfig(GlooConfig):
    """Broadcast from the trainer's GPUs to the engine's GPUs, which must be different ones."""

    backend: ClassVar[str] = "nccl"

    @override
    def build(self) -> StreamSender:
        return NcclSender(self)


class StreamSender:
    """Shared code of both backends. Call `open`, then `announce` and `send` per push, then `close`."""

    def __init__(self, config: GlooConfig) -> None:
        if config.bucket_mb < 1:
            raise ConfigError(f"weights.bucket_mb={config.bucket_mb} is less than 1. Set it to at least 1.")
        if config.timeout_s <= 0:
            raise ConfigError(f"weights.timeout_s={config.timeout_s} is not positive. Set it above 0.")
        self._host = LOOPBACK if config.host == "auto" else config.host
        self._port = config.port
        self._bucket_bytes = config.bucket_mb * 1024**2
        self._timeout = timedelta(seconds=config.timeout_s)
        self._receivers = 0
        self._store: TCPStore | None = None
        self._group: Any = None
        self._announced: list[TensorInfo] = []

    def open(self, run_folder: Path, receivers: int) -> None:
        """Store the number of the engine's workers. The first `send` creates the group, when the workers connect."""
        del run_folder
        self._receivers = receivers

    def announce(self, tensors: Sequence[TensorInfo], version: int) -> WeightUpdate:
        """Return the information that the engine needs to receive the next `send`."""
        if self._store is None:
            try:
                self._store = TCPStore(
                    self._host, self._port, is_master=True, wait_for_workers=False, timeout=self._timeout
                )
            except (OSError, RuntimeError) as error:
                raise WeightPushError(f"weights.port={self._port}: cannot listen for the engine: {error}") from error
        self._announced = list(tensors)
        meeting = {
            "host": self._host,
            "port": self._store.port,
            "ranks": 1 + self._receivers,
            "timeout_s": self._timeout.total_seconds(),
        }
        return WeightUpdate(
            version=version,
            init_info=meeting,
            update_info={
                "tensors": [tensor.as_json() for tensor in tensors],
                "bucket_bytes": self._bucket_bytes,
            },
        )

    def send(self, tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> WeightUpdate | None:
        """Broadcast the announced tensors. Raises WeightPushError if the engine does not receive them."""
        coming = iter(tensors)
        try:
            group = self._meet()
            for bucket in plan_buckets(self._announced, self._bucket_bytes):
                buffer = torch.empty(bucket_bytes(bucket), dtype=torch.uint8, device=self.device)
                pack(buffer, bucket, coming)
                broadcast(group, buffer)
        except (RuntimeError, ValueError) as error:
            raise WeightPushError(f"weights number {version} were not sent: {error}") from error
        return None

    def regroup(self, receivers: int) -> None:
        """See `WeightSender`. A group cannot change its members, so the next `announce` names a new group."""
        self.close()
        self._receivers = receivers

    def close(self) -> None:
        """Leave the group."""
        self._group = self._store = None

    @property
    def device(self) -> torch.device:
        """Return the device that a bucket must be on."""
        raise NotImplementedError

    def _make_group(self, store: Store, ranks: int) -> Any:
        raise NotImplementedError

    def _meet(self) -> Any:
        if self._store is None:
            raise RuntimeError("no tensors were announced. Call `announce` first.")
        if self._group is None:
            self._group = self._make_group(self._store, 1 + self._receivers)
        return self._group


class GlooSender(StreamSender):
    """Sender for `GlooConfig`: uses main memory and TCP."""

    backend = "gloo"

    @property
    @override
    def device(self) -> torch.device:
        return torch.device("cpu")

    @override
    def _make_group(self, store: Store, ranks: int) -> Any:
        return gloo_group(store, SENDER, ranks, self._timeout, self._host)


class NcclSender(StreamSender):
    """Sender for `NcclConfig`: GPU to GPU."""

    backend = "nccl"

    @property
    @override
    def device(self) -> torch.device:
        return torch.device("cuda", torch.cuda.current_device())

    @override
    def _make_group(self, store: Store, ranks: int) -> Any:
        return nccl_group(store, SENDER, ranks, self._timeout)


def gloo_group(store: Store, rank: int, ranks: int, timeout: timedelta, meeting: str = LOOPBACK) -> Any:
    """Return a group besides the trainer's and the engine's own. It uses the interface that reaches `meeting`."""
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # not in PyTorch's stubs
    options._timeout = timeout
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=own_address(meeting))]
    return dist.ProcessGroupGloo(PrefixStore("weights", store), rank, ranks, options)


def own_address(towards: str) -> str:
    """Return this machine's address as seen from `towards`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((towards, 9))  # connecting a datagram socket sends nothing
        return str(probe.getsockname()[0])


def nccl_group(store: Store, rank: int, ranks: int, timeout: timedelta) -> Any:
    """Return a group as `gloo_group` does, for NCCL."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(PrefixStore("weights", store), rank, ranks, options)


def broadcast(group: Any, buffer: torch.Tensor) -> None:
    """Broadcast from the trainer to all workers. Raises RuntimeError if a worker is lost or late."""
    options = dist.BroadcastOptions()
    options.rootRank = SENDER
    group.broadcast([buffer], options).wait()
