"""The schema of conf/trainer: the Megatron-core trainer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rl_agent.config.node import get


class Precision(StrEnum):
    """The type in which weights and activations are computed (the optimizer always keeps float32)."""

    float32 = "float32"
    """Exact enough to compare log-probabilities; the only sensible one without a GPU."""
    bfloat16 = "bfloat16"
    """Half the memory; the optimizer holds float32 master weights."""


@dataclass(slots=True, kw_only=True)
class MegatronConfig:
    """One trainer spread over `data * tensor * pipeline * context` ranks."""

    _target_: str = "rl_agent.trainer.megatron.MegatronTrainer"
    data_parallel: int = 1
    """Copies of the model, each with a part of the batch."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    sequence_parallel: bool = False
    """Shard the norms' activations too; needs tensor_parallel > 1."""
    distributed_optimizer: bool = False
    """Shard the optimizer's state over the copies of the model."""
    optimizer_offload: float = 0.0
    """Share of the optimizer's state that is kept, and updated, in CPU memory; needs GPUs and distributed_optimizer."""
    precision: Precision = Precision.float32
    micro_batch_tokens: int = 8192
    """Most tokens in one forward pass; a longer segment goes alone."""
    output_chunk_tokens: int = 4096
    """Predictions whose logits exist at a time; where there are more, the backward pass computes them again."""
    recompute: bool = False
    """Recompute activations in the backward pass instead of keeping them."""
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1.0e-8
    weight_decay: float = 0.0
    """Of matrices; norms and biases never decay."""
    grad_clip: float = 1.0
    """Largest norm of the whole gradient; 0 turns clipping off."""
    threads: int = 0
    """CPU threads of one rank; 0 leaves PyTorch's choice."""
    timeout_s: float = 600.0
    """How long a rank waits for the others before it gives up."""


SCHEMAS: Final = {"megatron": MegatronConfig}


def world_size(trainer: Any) -> int:
    """How many ranks the configured layout needs; a trainer of the user's own may lack some of the sizes, or all."""
    sizes = ("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel")
    return math.prod(get(trainer, size) or 1 for size in sizes)
