"""Checks of the parallel layout of a model."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.trainer import TrainerConfig
    from rl_agent.trainer.shape import LinearAttentionShape, ModelShape


def require_legal(config: TrainerConfig, shape: ModelShape | None = None) -> None:
    """Raise ConfigError with the first problem of a layout. Without `shape`, check only what is invalid for every model."""
    reasons = [*_in_itself(config), *(_for(config, shape) if shape else ())]
    if reasons:
        raise ConfigError(f"the trainer's layout is not possible: {reasons[0]}")


def _in_itself(config: TrainerConfig) -> Iterator[str]:
    for name in ("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel"):
        if getattr(config, name) < 1:
            yield f"trainer.{name} is {getattr(config, name)}; the least is 1"
    if config.sequence_parallel and config.tensor_parallel == 1:
        yield "trainer.sequence_parallel spreads over the tensor-parallel ranks; set trainer.tensor_parallel > 1, or it false"
    if not 0.0 <= config.optimizer_offload <= 1.0:
        yield f"trainer.optimizer_offload={config.optimizer_offload} is a share: it lies between 0 and 1"
    if config.optimizer_offload and not config.distributed_optimizer:
        yield "trainer.optimizer_offload needs trainer.distributed_optimizer=true (one copy of the model will do)"
    ranks = config.data_parallel * config.tensor_parallel * config.context_parallel
    if ranks % config.expert_parallel:
        yield (
            f"trainer.expert_parallel={config.expert_parallel} must divide data_parallel x tensor_parallel x "
            f"context_parallel = {ranks}: experts are spread over ranks that share a pipeline stage"
        )


def _for(config: TrainerConfig, shape: ModelShape) -> Iterator[str]:
    tensor = config.tensor_parallel
    if shape.layers % config.pipeline_parallel:
        yield f"trainer.pipeline_parallel={config.pipeline_parallel} does not divide the model's {shape.layers} layers"
    for what, count in (("attention heads", shape.heads), ("key-value heads", shape.groups)):
        if count % tensor:
            yield f"trainer.tensor_parallel={tensor} does not divide the model's {count} {what}"
    if shape.linear is not None:
        yield from _for_linear_attention(config, shape.linear)
    if shape.experts is None:
        if config.expert_parallel > 1:
            yield f"trainer.expert_parallel={config.expert_parallel}, but the model has no experts; set it to 1"
        if shape.ffn % tensor:
            yield f"trainer.tensor_parallel={tensor} does not divide the width {shape.ffn} of the model's MLP"
        return
    if shape.experts.count % config.expert_parallel:
        yield f"trainer.expert_parallel={config.expert_parallel} does not divide the model's {shape.experts.count} experts"
    if tensor > 1 and not config.sequence_parallel:
        yield "a model with experts needs trainer.sequence_parallel=true when trainer.tensor_parallel > 1"
    if config.expert_parallel == 1 and shape.experts.ffn % tensor:
        yield f"trainer.tensor_parallel={tensor} does not divide the width {shape.experts.ffn} of the model's experts"


def _for_linear_attention(config: TrainerConfig, linear: LinearAttentionShape) -> Iterator[str]:
    since = f"megatron-core {version('megatron-core')} cannot spread linear attention over a sequence"
    if config.context_parallel > 1:
        yield f"{since}: set trainer.context_parallel=1"
    if config.sequence_parallel:
        yield f"{since}: set trainer.sequence_parallel=false"
    for what, count in (("key", linear.key_heads), ("value", linear.value_heads)):
        if count % config.tensor_parallel:
            yield f"trainer.tensor_parallel={config.tensor_parallel} does not divide the {count} {what} heads of linear attention"
