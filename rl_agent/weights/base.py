"""Contract of weight transport: a sender in the trainer, a receiver in the engine's workers, one pair per backend."""

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
    """JSON-safe information that the engine needs to fetch one version of the weights."""

    version: int
    update_info: Mapping[str, Any]
    """Body of vLLM's `/update_weights`."""
    init_info: Mapping[str, Any] = field(default_factory=dict)
    """Body of vLLM's `/init_weight_transfer_engine`, called once before the first update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Token sequence with the trainer's log-probabilities. A push succeeds only if the engine's agree."""

    tokens: npt.NDArray[np.int32]
    """[T] int32."""
    logprobs: npt.NDArray[np.float32]
    """[T - 1] float32: log-probability of tokens[i + 1] given tokens[: i + 1]."""


class WeightSender(Protocol):
    """Trainer's half of a transport. Built by `WeightsConfig.build`."""

    def open(self, run_folder: Path, receivers: int) -> None:
        """Set the run folder and the number of the engine's workers. Must be called first."""

    def announce(self, tensors: Sequence[TensorInfo], version: int) -> WeightUpdate | None:
        """Return the update for backends that send while the engine receives. None: the engine fetches after `send`."""

    def send(self, tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> WeightUpdate | None:
        """Send Hugging Face-named tensors as `version`. Returns None after `announce`. Raises WeightPushError."""

    def regroup(self, receivers: int) -> None:
        """Set the new number of workers after a replica was lost or came back. Applies to the next update."""

    def close(self) -> None:
        """Free all held resources."""
