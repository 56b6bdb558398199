"""The `gloo` and `nccl` backends, trainer's half: weights are broadcast to the engine's workers, bucket by bucket.

Nothing touches a disk, and no more than a bucket is held twice. While the trainer sends, the engine is paused and receives, so
both halves of a push run at the same time; a half that is left alone fails after `timeout_s`.
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
    """Broadcast from the trainer's memory to the engine's, over TCP."""

    backend: ClassVar[str] = "gloo"
    bucket_mb: int = 512
    """Weights travel in pieces of this size."""
    port: int = 0
    """0: a free one."""
    timeout_s: float = 300.0
    """Time that each half of a push waits for the other."""

    @override
    def build(self) -> StreamSender:
        return GlooSender(self)


@dataclass(kw_only=True)
class NcclConfig(GlooConfig):
    """Broadcast from the trainer's GPUs to the engine's, which must be others."""

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
        """`receivers`: workers of the engine. The group is made at the first `send`, when they come to meet."""
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
                raise WeightPushError(
                    f"the trainer cannot wait for the engine at weights.port={self._port}: {error}"
                ) from error
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
        """See `WeightSender`: a group cannot lose or gain members, so the next `announce` names a new one."""
        self.close()
        self._receivers = receivers

    def close(self) -> None:
        """Leave the group."""
        self._group = self._store = None

    @property
    def device(self) -> torch.device:
        """Device that a bucket must be on."""
        raise NotImplementedError

    def _make_group(self, store: Store, ranks: int) -> Any:
        raise NotImplementedError

    def _meet(self) -> Any:
        if self._store is None:
            raise RuntimeError("nothing was announced")
        if self._group is None:
            self._group = self._make_group(self._store, 1 + self._receivers)
        return self._group


class GlooSender(StreamSender):
    """See `GlooConfig`: through the machines' memory and TCP."""

    backend = "gloo"

    @property
    @override
    def device(self) -> torch.device:
        return torch.device("cpu")

    @override
    def _make_group(self, store: Store, ranks: int) -> Any:
        return gloo_group(store, SENDER, ranks, self._timeout, self._host)


class NcclSender(StreamSender):
    """See `NcclConfig`: from GPU to GPU."""

    backend = "nccl"

    @property
    @override
    def device(self) -> torch.device:
        return torch.device("cuda", torch.cuda.current_device())

    @override
    def _make_group(self, store: Store, ranks: int) -> Any:
        return nccl_group(store, SENDER, ranks, self._timeout)


def gloo_group(store: Store, rank: int, ranks: int, timeout: timedelta, meeting: str = LOOPBACK) -> Any:
    """A group beside the ones that trainer and engine have for themselves; its traffic goes where `meeting` is reached."""
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # not in PyTorch's stubs
    options._timeout = timeout
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=own_address(meeting))]
    return dist.ProcessGroupGloo(PrefixStore("weights", store), rank, ranks, options)


def own_address(towards: str) -> str:
    """The address of this machine that others see when it talks to `towards`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((towards, 9))  # a datagram socket sends nothing for that
        return str(probe.getsockname()[0])


def nccl_group(store: Store, rank: int, ranks: int, timeout: timedelta) -> Any:
    """Like `gloo_group`."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(PrefixStore("weights", store), rank, ranks, options)


def broadcast(group: Any, buffer: torch.Tensor) -> None:
    """From the trainer to all others. Raises RuntimeError when one of them is lost or late."""
    options = dist.BroadcastOptions()
    options.rootRank = SENDER
    group.broadcast([buffer], options).wait()
