"""Packing of tensors into flat buffers. Sender and receiver apply the same rule, so both plan the same buckets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """Name, type and shape of a tensor, known before the tensor arrives."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def as_json(self) -> list[Any]:
        """Return the input for `from_json`."""
        return [self.name, str(self.dtype).removeprefix("torch."), list(self.shape)]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> TensorInfo:
        """Read the result of `as_json`. Raises TypeError, AttributeError for other input."""
        name, dtype, shape = value
        found = getattr(torch, str(dtype))
        if not isinstance(found, torch.dtype):
            raise TypeError(f"{dtype}: not a dtype")
        return cls(name=str(name), dtype=found, shape=tuple(int(n) for n in shape))


def plan_buckets(tensors: Iterable[TensorInfo], limit: int) -> Iterator[list[TensorInfo]]:
    """Yield buckets of at most `limit` bytes in tensor order. A larger tensor gets its own bucket."""
    bucket: list[TensorInfo] = []
    size = 0
    for tensor in tensors:
        if bucket and size + tensor.size > limit:
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.size
    if bucket:
        yield bucket


def pack(buffer: torch.Tensor, bucket: Sequence[TensorInfo], tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
    """Fill a [bytes] uint8 buffer with the next tensors. Raises ValueError if they differ from the announced ones."""
    start = 0
    for expected in bucket:
        name, tensor = next(tensors, ("nothing", torch.empty(0)))
        if name != expected.name or tuple(tensor.shape) != expected.shape or tensor.dtype != expected.dtype:
            found = f"{name} {list(tensor.shape)} {tensor.dtype}"
            raise ValueError(f"expected {expected.name} {list(expected.shape)} {expected.dtype}, got {found}")
        part = tensor.detach().contiguous().view(-1).view(torch.uint8)
        buffer[start : start + expected.size].copy_(part, non_blocking=True)
        start += expected.size


def unpack(buffer: torch.Tensor, bucket: Sequence[TensorInfo]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield copies of the tensors in a buffer. Views would not be aligned, and the buffer is reused."""
    start = 0
    for tensor in bucket:
        part = buffer[start : start + tensor.size].clone()
        yield tensor.name, part.view(tensor.dtype).view(tensor.shape)
        start += tensor.size


def bucket_bytes(bucket: Sequence[TensorInfo]) -> int:
    """Return the size of a bucket's buffer in bytes."""
    return sum(tensor.size for tensor in bucket)
