"""The contract of weight transport: a sender in the trainer, a receiver in the engine's workers, one pair a backend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import torch

    from rl_agent.weights.buckets import TensorInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdate:
    """Information that the engine needs to fetch one version of the weights (JSON-safe)."""

    version: int
    update_info: Mapping[str, Any]
    """Body of vLLM's `/update_weights`."""
    init_info: Mapping[str, Any] = field(default_factory=dict)
    """Body of vLLM's `/init_weight_transfer_engine`, which is called once before the first update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A token sequence and the trainer's log-probabilities of it: a push counts only if the engine agrees."""

    tokens: npt.NDArray[np.int32]
    """[T] int32."""
    logprobs: npt.NDArray[np.float32]
    """[T - 1] float32: log-probability of tokens[i + 1] given tokens[: i + 1]."""


class WeightSender(Protocol):
    """The trainer's half of a transport. Built by `WeightsConfig.build`."""

    def open(self, run_folder: Path, receivers: int) -> None:
        """Say where the run lives and how many workers the engine has, before anything else."""

    def announce(self, tensors: Sequence[TensorInfo], version: int) -> WeightUpdate | None:
        """For backends that send while the engine receives: what it needs to know for that. None: it fetches what was sent."""

    def send(self, tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> WeightUpdate | None:
        """Bring Hugging Face-named tensors to the engine as `version`; None after `announce`. Raises WeightPushError."""

    def regroup(self, receivers: int) -> None:
        """The engine has other workers now: a replica was lost, or came back. The next update is for `receivers` of them."""

    def close(self) -> None:
        """Give back what is held."""
