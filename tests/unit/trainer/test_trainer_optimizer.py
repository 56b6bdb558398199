"""What Megatron is told of the optimizer, and that a share of it can live in CPU memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from trainer_cases import grpo, random_batch, trainer

from rl_agent.config.trainer import Precision
from rl_agent.errors import ConfigError
from rl_agent.trainer.megatron import MegatronConfig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.trainer_process
def test_every_field_of_the_configuration_reaches_megatron() -> None:
    from rl_agent.trainer import optimizer

    config = MegatronConfig(
        beta1=0.8,
        beta2=0.9,
        eps=1e-6,
        weight_decay=0.1,
        grad_clip=0.5,
        precision=Precision.bfloat16,
        distributed_optimizer=True,
        optimizer_offload=0.75,
    )
    with pytest.MonkeyPatch.context() as patch:  # Megatron's own asks for Transformer Engine when a share is offloaded
        patch.setattr(optimizer, "OptimizerConfig", SimpleNamespace)
        told = optimizer.optimizer_options(config)
    assert (told.adam_beta1, told.adam_beta2, told.adam_eps) == (0.8, 0.9, 1e-6)
    assert (told.weight_decay, told.clip_grad) == (0.1, 0.5)
    assert told.bf16
    assert told.params_dtype is torch.bfloat16
    assert told.use_distributed_optimizer
    assert told.optimizer_cpu_offload
    assert told.optimizer_offload_fraction == 0.75
    assert told.overlap_cpu_optimizer_d2h_h2d


@pytest.mark.trainer_process
def test_without_offloading_the_optimizer_stays_where_the_weights_are() -> None:
    from rl_agent.trainer.optimizer import optimizer_options

    told = optimizer_options(MegatronConfig())
    assert not told.optimizer_cpu_offload
    assert not told.use_precision_aware_optimizer
    assert told.params_dtype is torch.float32


@pytest.mark.trainer_process
@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_offloading_without_a_gpu_is_refused(tiny_model: Path) -> None:
    with (
        pytest.raises(ConfigError, match="optimizer_offload"),
        trainer(tiny_model, grpo(), distributed_optimizer=True, optimizer_offload=0.5),
    ):
        pass


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with Transformer Engine")
@pytest.mark.trainer_process
def test_an_offloaded_optimizer_takes_the_steps_of_one_that_is_not(tiny_model: Path) -> None:
    losses = []
    for share in (0.0, 1.0):
        with trainer(
            tiny_model,
            grpo(),
            distributed_optimizer=True,
            optimizer_offload=share,
            precision=Precision.bfloat16,
        ) as one:
            losses.append([one.step(random_batch(seed)).metrics["train/loss"] for seed in range(3)])
    assert losses[0] == pytest.approx(losses[1], abs=1e-2)
