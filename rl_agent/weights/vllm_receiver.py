"""Engine's half of the backends. Runs in vLLM's workers and is imported only there.

vLLM imports this module in every worker because of `--worker-extension-cls
rl_agent.weights.vllm_receiver.WorkerExtension`. The import registers the backends, one of which
`--weight-transfer-config` selects.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Store, TCPStore
from typing_extensions import override
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.platforms import current_platform

from rl_agent.errors import WeightPushError
from rl_agent.weights.buckets import TensorInfo, bucket_bytes, plan_buckets, unpack
from rl_agent.weights.ipc import see
from rl_agent.weights.safetensors_folder import TensorFolder
from rl_agent.weights.stream import broadcast, gloo_group, nccl_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class LayerwiseReceiver(WeightTransferEngine):  # type: ignore[misc]  # vLLM is not checked
    """Base of all receivers. vLLM's own loader loads the weights layer by layer and repacks them for its kernels."""

    def start_weight_update(self) -> None:
        """Convert the layers to the form in which they can be loaded."""
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """Convert the layers to the form in which they run."""
        finalize_layerwise_reload(self.model, self.model_config)
        if current_platform.is_cpu():
            repack_tied_head(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Receive one version."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def shutdown(self) -> None:
        """Do nothing: no resources are held between updates."""

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Stream Hugging Face tensors into the model."""
        self.model.load_weights(tensors)


def repack_tied_head(model: torch.nn.Module) -> None:
    """Refresh the packed copy of a tied output layer. vLLM 0.32 on CPUs does not refresh it on reload."""
    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)


@dataclass
class NoInit(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is not checked
    """Empty, because files need no rendezvous."""


@dataclass
class DiskUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]  # vLLM is not checked
    """A version in a folder. See `DiskSender.send`."""

    path: str
    tensors: int
    """Number of tensors."""


class DiskReceiver(LayerwiseReceiver):
    """Reads the folder written by `DiskSender`."""

    init_info_cls = NoInit
    update_info_cls = DiskUpdate

    def init_transfer_engine(self, init_info: NoInit) -> None:
        """Do nothing: files need no connection."""

    def receive_weights(self, update_info: DiskUpdate) -> None:
        """Load all tensors of the folder. Raises WeightPushError if their number differs from the number sent."""
        folder = TensorFolder(Path(update_info.path))
        if len(folder) != update_info.tensors:
            raise WeightPushError(
                f"{update_info.path}: {len(folder)} tensors found, but {update_info.tensors} were sent"
            )
        self.load((name, folder[name].to(self.device)) for name in folder)


@dataclass
class StreamInit(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is not checked
    """Address of the trainer. See `StreamSender.announce`."""

    host: str
    port: int
    ranks: int
    timeout_s: float
    first_rank: int = 1
    """Rank offset of this engine's workers. Other replicas have different offsets."""


@dataclass
class StreamUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]  # vLLM is not checked
    """Tensors announced by the trainer."""

    tensors: list[list[Any]]
    bucket_bytes: int


class StreamReceiver(LayerwiseReceiver):
    """Receives the broadcasts of a `StreamSender`."""

    init_info_cls = StreamInit
    update_info_cls = StreamUpdate

    def init_transfer_engine(self, init_info: StreamInit) -> None:
        """Connect to the trainer."""
        timeout = timedelta(seconds=init_info.timeout_s)
        store = TCPStore(init_info.host, init_info.port, is_master=False, timeout=timeout)
        self._meeting = init_info.host
        rank = init_info.first_rank + self.parallel_config.rank
        self._group = self._make_group(store, rank, init_info.ranks, timeout)

    def receive_weights(self, update_info: StreamUpdate) -> None:
        """Load all tensors as they arrive."""
        tensors = [TensorInfo.from_json(value) for value in update_info.tensors]
        self.load(self._received(tensors, update_info.bucket_bytes))

    def _received(self, tensors: list[TensorInfo], limit: int) -> Iterator[tuple[str, torch.Tensor]]:
        for bucket in plan_buckets(tensors, limit):
            buffer = torch.empty(bucket_bytes(bucket), dtype=torch.uint8, device=self._buffer_device)
            broadcast(self._group, buffer)
            for name, tensor in unpack(buffer, bucket):
                yield name, tensor.to(self.device)

    @property
    def _buffer_device(self) -> torch.device:
        return torch.device("cpu")

    def _make_group(self, store: Store, rank: int, ranks: int, timeout: timedelta) -> Any:
        return gloo_group(store, rank, ranks, timeout, self._meeting)


class GlooReceiver(StreamReceiver):
    """Receives into main memory."""


class NcclReceiver(StreamReceiver):
    """Receives directly into GPU memory."""

    @property
    @override
    def _buffer_device(self) -> torch.device:
        device: torch.device = self.device
        return device

    @override
    def _make_group(self, store: Store, rank: int, ranks: int, timeout: timedelta) -> Any:
        return nccl_group(store, rank, ranks, timeout)


@dataclass
class IpcUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]  # vLLM is not checked
    """Handles of the trainer's buffers. See `IpcSender.send`."""

    tensors: list[list[Any]]
    bucket_bytes: int
    handles: list[list[Any]]


class IpcReceiver(LayerwiseReceiver):
    """Reads the trainer's buffers on the shared GPU."""

    init_info_cls = NoInit
    update_info_cls = IpcUpdate

    def init_transfer_engine(self, init_info: NoInit) -> None:
        """Do nothing: handles need no connection."""

    def receive_weights(self, update_info: IpcUpdate) -> None:
        """Load all tensors."""
        tensors = [TensorInfo.from_json(value) for value in update_info.tensors]
        buckets = plan_buckets(tensors, update_info.bucket_bytes)
        self.load(
            named
            for bucket, handle in zip(buckets, update_info.handles, strict=True)
            for named in unpack(see(handle, self.device), bucket)
        )


class WorkerExtension:
    """Class that vLLM mixes into its workers. It only causes the import of this module."""


for _name, _engine in (("disk", DiskReceiver), ("gloo", GlooReceiver), ("nccl", NcclReceiver), ("ipc", IpcReceiver)):
    # replace vLLM's own `nccl` and `ipc` engines
    WeightTransferEngineFactory._registry.pop(_name, None)
    WeightTransferEngineFactory.register_engine(_name, _engine)
