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
    """Type of weights and activations. The optimizer always keeps float32."""

    float32 = "float32"
    """Exact enough to compare log-probabilities. Use it without a GPU."""
    bfloat16 = "bfloat16"
    """Half the memory. The optimizer has float32 master weights."""


@dataclass(kw_only=True)
class TrainerConfig(PlugInConfig, base=True):
    """Options that every trainer has, as used by the planner and the cluster."""

    data_parallel: int = 1
    """Number of copies of the model, each with a part of the batch."""
    tensor_parallel: int = 1
    """Number of ranks that shard each matrix."""
    pipeline_parallel: int = 1
    """Number of pipeline stages that shard the layers."""
    context_parallel: int = 1
    """Number of ranks that shard each sequence."""
    expert_parallel: int = 1
    """Number of ranks that shard the experts."""
    sequence_parallel: bool = False
    """Shard the activations of norms too. Needs tensor_parallel > 1."""
    distributed_optimizer: bool = False
    """Shard the optimizer state over the copies of the model."""
    optimizer_offload: float = 0.0
    """Fraction of the optimizer state that is kept and updated in CPU memory. Needs GPUs and distributed_optimizer."""
    precision: Precision = Precision.float32
    """Type of weights and activations."""
    micro_batch_tokens: int = 8192
    """Maximum tokens per micro-batch. A longer segment gets a micro-batch of its own."""
    output_chunk_tokens: int = 4096
    """Number of predictions whose logits exist at a time. If there are more, the backward pass recomputes them."""
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
