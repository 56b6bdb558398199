"""Tensors packed into flat buffers, by one rule that sender and receiver both know: a bucket is full when the next would not fit."""

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
        """Bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def as_json(self) -> list[Any]:
        """For `from_json`."""
        return [self.name, str(self.dtype).removeprefix("torch."), list(self.shape)]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> TensorInfo:
        """Read the result of `as_json`. Raises TypeError, AttributeError for other input."""
        name, dtype, shape = value
        found = getattr(torch, str(dtype))
        if not isinstance(found, torch.dtype):
            raise TypeError(f"{dtype} is no dtype")
        return cls(name=str(name), dtype=found, shape=tuple(int(n) for n in shape))


def plan_buckets(tensors: Iterable[TensorInfo], limit: int) -> Iterator[list[TensorInfo]]:
    """In their order; a tensor larger than `limit` bytes has a bucket of its own."""
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
    """Fill a [bytes] uint8 buffer with the next tensors. Raises ValueError if they are others than were announced."""
    start = 0
    for expected in bucket:
        name, tensor = next(tensors, ("nothing", torch.empty(0)))
        if name != expected.name or tuple(tensor.shape) != expected.shape or tensor.dtype != expected.dtype:
            found = f"{name} {list(tensor.shape)} {tensor.dtype}"
            raise ValueError(f"{expected.name} {list(expected.shape)} {expected.dtype} was announced, {found} came")
        part = tensor.detach().contiguous().view(-1).view(torch.uint8)
        buffer[start : start + expected.size].copy_(part, non_blocking=True)
        start += expected.size


def unpack(buffer: torch.Tensor, bucket: Sequence[TensorInfo]) -> Iterator[tuple[str, torch.Tensor]]:
    """Copies of the tensors of a buffer: parts of it would not be aligned, and the buffer is used again."""
    start = 0
    for tensor in bucket:
        part = buffer[start : start + tensor.size].clone()
        yield tensor.name, part.view(tensor.dtype).view(tensor.shape)
        start += tensor.size


def bucket_bytes(bucket: Sequence[TensorInfo]) -> int:
    """Size of its buffer."""
    return sum(tensor.size for tensor in bucket)
