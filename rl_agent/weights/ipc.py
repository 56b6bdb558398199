"""The `ipc` backend, trainer's half: trainer and engine share a GPU; the engine reads the trainer's buffers in place.

Handles are sent as JSON, never pickled. Buffers are kept until the next version, so the GPU must hold the policy's
weights a second time. This project's machines have no GPU, so this backend is untested there;
`tests/unit/weights/test_ipc.py` runs on machines with a GPU.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from typing_extensions import override

from rl_agent.config.weights import WeightsConfig
from rl_agent.errors import ConfigError, WeightPushError
from rl_agent.weights.base import WeightUpdate
from rl_agent.weights.buckets import TensorInfo, bucket_bytes, pack, plan_buckets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


@dataclass(kw_only=True)
class IpcConfig(WeightsConfig):
    """Transfer through shared buffers if trainer and engine are on the same GPU."""

    backend: ClassVar[str] = "ipc"
    same_gpu: ClassVar[bool] = True
    bucket_mb: int = 512
    """Size of one buffer."""

    @override
    def build(self) -> IpcSender:
        return IpcSender(self)


class IpcSender:
    """Sender for `IpcConfig`. Call `open`, then `announce` and `send` for each version, then `close`."""

    def __init__(self, config: IpcConfig) -> None:
        if config.bucket_mb < 1:
            raise ConfigError(f"weights.bucket_mb={config.bucket_mb} is less than 1. Set it to at least 1.")
        self._bucket_bytes = config.bucket_mb * 1024**2
        self._held: list[torch.Tensor] = []
        self._announced: list[TensorInfo] = []

    def open(self, run_folder: Path, receivers: int) -> None:
        """Raise ConfigError for an engine with several workers: only one of them is on the first rank's GPU."""
        del run_folder
        self.regroup(receivers)

    def regroup(self, receivers: int) -> None:
        """Raise ConfigError for an engine with several workers. See `open`."""
        if receivers != 1:
            raise ConfigError(
                f"weights=ipc: reaches only one worker, but engine.tensor_parallel is {receivers}. "
                "Set weights=nccl or weights=gloo."
            )

    def announce(self, tensors: Sequence[TensorInfo], version: int) -> None:
        """Store the tensor list. The engine reads after `send`, so it needs no update yet."""
        del version
        self._announced = list(tensors)

    def send(self, tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> WeightUpdate:
        """Put the tensors into shared buffers. Raises WeightPushError."""
        self.close()
        coming = iter(tensors)
        handles = []
        try:
            for bucket in plan_buckets(self._announced, self._bucket_bytes):
                buffer = torch.empty(bucket_bytes(bucket), dtype=torch.uint8, device="cuda")
                pack(buffer, bucket, coming)
                self._held.append(buffer)
                handles.append(share(buffer))
            torch.cuda.synchronize()
        except (RuntimeError, ValueError) as error:
            raise WeightPushError(f"weights number {version} cannot be shared: {error}") from error
        return WeightUpdate(
            version=version,
            update_info={
                "tensors": [tensor.as_json() for tensor in self._announced],
                "bucket_bytes": self._bucket_bytes,
                "handles": handles,
            },
        )

    def close(self) -> None:
        """Free the buffers."""
        self._held.clear()


def share(buffer: torch.Tensor) -> list[Any]:
    """Return PyTorch's CUDA storage handle, JSON-safe. Another process on the same GPU opens the buffer with it."""
    parts = buffer.untyped_storage()._share_cuda_()  # type: ignore[no-untyped-call]
    return [base64.b64encode(part).decode() if isinstance(part, bytes) else part for part in parts]


def see(handle: Sequence[Any], device: torch.device) -> torch.Tensor:
    """Return the [bytes] uint8 buffer that another process shares."""
    _theirs, *parts = (base64.b64decode(part) if isinstance(part, str) else part for part in handle)
    storage = torch.UntypedStorage._new_shared_cuda(device.index, *parts)
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
