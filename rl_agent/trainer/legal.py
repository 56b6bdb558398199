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
    """Raise ConfigError with the first problem of a layout.

    Without `shape`, check only what is invalid for every model.
    """
    reasons = [*_in_itself(config), *(_for(config, shape) if shape else ())]
    if reasons:
        raise ConfigError(reasons[0])


def _in_itself(config: TrainerConfig) -> Iterator[str]:
    for name in ("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel"):
        if getattr(config, name) < 1:
            yield f"trainer.{name}={getattr(config, name)}: less than 1. Set it to at least 1."
    if config.sequence_parallel and config.tensor_parallel == 1:
        yield "trainer.sequence_parallel=true: needs tensor parallelism. Set trainer.tensor_parallel > 1, or unset it."
    if not 0.0 <= config.optimizer_offload <= 1.0:
        yield f"trainer.optimizer_offload={config.optimizer_offload}: not a fraction. Set it between 0 and 1."
    if config.optimizer_offload and not config.distributed_optimizer:
        yield (
            f"trainer.optimizer_offload={config.optimizer_offload}: needs trainer.distributed_optimizer=true. Set it "
            "(it works with one copy of the model)."
        )
    ranks = config.data_parallel * config.tensor_parallel * config.context_parallel
    if ranks % config.expert_parallel:
        yield (
            f"trainer.expert_parallel={config.expert_parallel}: must divide data_parallel x tensor_parallel x "
            f"context_parallel = {ranks}, since the ranks of a pipeline stage share the experts. Set it to a divisor."
        )


def _for(config: TrainerConfig, shape: ModelShape) -> Iterator[str]:
    tensor = config.tensor_parallel
    if shape.layers % config.pipeline_parallel:
        yield _indivisible("pipeline_parallel", config.pipeline_parallel, f"the model's {shape.layers} layers")
    for what, count in (("attention heads", shape.heads), ("key-value heads", shape.groups)):
        if count % tensor:
            yield _indivisible("tensor_parallel", tensor, f"the model's {count} {what}")
    if shape.linear is not None:
        yield from _for_linear_attention(config, shape.linear)
    if shape.experts is None:
        if config.expert_parallel > 1:
            yield f"trainer.expert_parallel={config.expert_parallel}: the model has no experts. Set it to 1."
        if shape.ffn % tensor:
            yield _indivisible("tensor_parallel", tensor, f"the width {shape.ffn} of the model's MLP")
        return
    if shape.experts.count % config.expert_parallel:
        yield _indivisible("expert_parallel", config.expert_parallel, f"the model's {shape.experts.count} experts")
    if tensor > 1 and not config.sequence_parallel:
        yield (
            f"trainer.tensor_parallel={tensor}: with experts, this needs trainer.sequence_parallel=true. "
            "Set it, or set trainer.tensor_parallel=1."
        )
    if config.expert_parallel == 1 and shape.experts.ffn % tensor:
        yield _indivisible("tensor_parallel", tensor, f"the width {shape.experts.ffn} of the model's experts")


def _for_linear_attention(config: TrainerConfig, linear: LinearAttentionShape) -> Iterator[str]:
    unsupported = "linear-attention layers do not support {} parallelism in megatron-core " + version("megatron-core")
    if config.context_parallel > 1:
        where = f"trainer.context_parallel={config.context_parallel}"
        yield f"{where}: {unsupported.format('context')}. Set trainer.context_parallel=1."
    if config.sequence_parallel:
        where = "trainer.sequence_parallel=true"
        yield f"{where}: {unsupported.format('sequence')}. Set trainer.sequence_parallel=false."
    for what, count in (("key", linear.key_heads), ("value", linear.value_heads)):
        if count % config.tensor_parallel:
            yield _indivisible(
                "tensor_parallel", config.tensor_parallel, f"the {count} {what} heads of linear attention"
            )


def _indivisible(field: str, value: int, what: str) -> str:
    return f"trainer.{field}={value}: does not divide {what}. Set it to a divisor."
