"""Base config of a trainer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.config.plug_in import PlugInConfig

if TYPE_CHECKING:
    from rl_agent.trainer.base import Trainer


class Precision(StrEnum):
    """The type in which weights and activations are computed (the optimizer always keeps float32)."""

    float32 = "float32"
    """Exact enough to compare log-probabilities; the only sensible one without a GPU."""
    bfloat16 = "bfloat16"
    """Half the memory; the optimizer holds float32 master weights."""


@dataclass(kw_only=True)
class TrainerConfig(PlugInConfig, base=True):
    """Options that every trainer has: what the planner and the cluster ask for."""

    data_parallel: int = 1
    """Copies of the model, each with a part of the batch."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    sequence_parallel: bool = False
    """Shard the norms' activations too; needs tensor_parallel > 1."""
    distributed_optimizer: bool = False
    """Shard the optimizer state over the copies of the model."""
    optimizer_offload: float = 0.0
    """Share of the optimizer state that is kept and updated in CPU memory; needs GPUs and distributed_optimizer."""
    precision: Precision = Precision.float32
    micro_batch_tokens: int = 8192
    """Most tokens in one forward pass; a longer segment goes alone."""
    output_chunk_tokens: int = 4096
    """Predictions whose logits exist at a time. If there are more, the backward pass recomputes them."""
    recompute: bool = False
    """Recompute activations in the backward pass instead of keeping them."""

    @property
    def world_size(self) -> int:
        """Number of ranks that the layout needs."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    @override
    def build(self) -> Trainer:
        """Return one rank of the trainer."""
        raise NotImplementedError
