"""The contract of weight transport: a sender in the trainer, a receiver in the engine's workers, one pair a backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdate:
    """What the engine must know to fetch one version of the weights (JSON-safe)."""

    version: int
    update_info: Mapping[str, Any]
    """Body of vLLM's `/update_weights`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A token sequence and the trainer's log-probabilities of it: a push counts only if the engine agrees."""

    tokens: npt.NDArray[np.int32]
    """[T] int32."""
    logprobs: npt.NDArray[np.float32]
    """[T - 1] float32: log-probability of tokens[i + 1] given tokens[: i + 1]."""


class WeightSender(Protocol):
    """The trainer's half. Built from config (`weights._target_`)."""

    backend: str
    """Name under which the receiver is registered with vLLM (`--weight-transfer-config`)."""

    def open(self, run_folder: Path) -> None:
        """Say where the run lives, before the first `send`."""

    def send(self, tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> WeightUpdate:
        """Make Hugging Face-named tensors available to the engine as `version`. Raises WeightPushError."""
