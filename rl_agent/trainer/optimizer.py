"""Megatron's gradient buffers and Adam. A zero or non-finite gradient gives no step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer, get_standard_config_overrides
from megatron.core.utils import get_model_config

from rl_agent.config.trainer import Precision
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from rl_agent.trainer.megatron import MegatronConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """Result of one gradient."""

    grad_norm: float
    """Norm before clipping. Infinite or NaN if the gradient was not finite."""
    updated: bool


def wrap_model(model: Any, config: MegatronConfig) -> Any:
    """Wrap the model with gradient buffers that are summed, not averaged, over its copies.

    Token weights do the normalization.
    """
    wrapped = DistributedDataParallel(
        get_model_config(model),
        DistributedDataParallelConfig(
            grad_reduce_in_fp32=True,
            use_distributed_optimizer=config.distributed_optimizer,
        ),
        model,
    )
    get_model_config(model).finalize_model_grads_func = _finalize
    return wrapped


def _finalize(models: list[Any], _num_tokens: Any, **groups: Any) -> None:
    """Run Megatron's finalization without its division by the number of tokens, as token weights are normalized."""
    finalize_model_grads(models, None, **groups)


def build_optimizer(wrapped: Any, config: MegatronConfig) -> Any:
    """Build Adam over the wrapped model. `update` sets the learning rate of each step. Raises ConfigError."""
    if config.optimizer_offload > 0.0 and not torch.cuda.is_available():
        raise ConfigError(f"trainer.optimizer_offload={config.optimizer_offload}: no GPU found. Set it to 0.")
    options = optimizer_options(config)
    return get_megatron_optimizer(options, [wrapped], get_standard_config_overrides(options))


def optimizer_options(config: MegatronConfig) -> OptimizerConfig:
    """Return Megatron's optimizer options."""
    bf16 = config.precision is Precision.bfloat16
    offloaded = config.optimizer_offload > 0.0
    return OptimizerConfig(
        optimizer="adam",
        lr=1.0,
        min_lr=0.0,
        weight_decay=config.weight_decay,
        adam_beta1=config.beta1,
        adam_beta2=config.beta2,
        adam_eps=config.eps,
        clip_grad=config.grad_clip,
        bf16=bf16,
        params_dtype=torch.bfloat16 if bf16 else torch.float32,
        use_distributed_optimizer=config.distributed_optimizer,
        optimizer_cpu_offload=offloaded,
        optimizer_offload_fraction=config.optimizer_offload,
        overlap_cpu_optimizer_d2h_h2d=offloaded,
        use_precision_aware_optimizer=offloaded,  # Megatron requires it for offloading
    )


def zero_gradients(wrapped: Any, optimizer: Any) -> None:
    """Zero all gradients."""
    wrapped.zero_grad_buffer()
    optimizer.zero_grad()


def update(optimizer: Any, *, lr: float, weight_decay: float) -> UpdateResult:
    """Take one optimizer step. If the gradient is zero or not finite, nothing changes, including the momentum."""
    overflow = optimizer.prepare_grads()
    norm = float(optimizer.get_grad_norm())
    if overflow or not math.isfinite(norm) or norm == 0.0:
        return UpdateResult(grad_norm=math.nan if overflow else norm, updated=False)
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_mult"]
        group["weight_decay"] = weight_decay * group["wd_mult"]
    updated, _, _ = optimizer.step()
    return UpdateResult(grad_norm=norm, updated=bool(updated))
