"""A layout that cannot be is refused with the reason; one that can is not. Needs no Megatron."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from trainer_cases import TINY

from rl_agent.errors import ConfigError
from rl_agent.trainer.legal import require_legal
from rl_agent.trainer.megatron import MegatronConfig
from rl_agent.trainer.shape import read_shape

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.trainer.shape import ModelShape

EXPERTS = TINY | {
    "model_type": "qwen3_moe",
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "norm_topk_prob": True,
}
HYBRID = TINY | {
    "model_type": "qwen3_5_text",
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 4,
    "linear_conv_kernel_dim": 4,
}


def shape(folder: Path, model: dict[str, Any]) -> ModelShape:
    (folder / "config.json").write_text(json.dumps(model))
    return read_shape(folder)


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ({"data_parallel": 0}, "trainer.data_parallel=0: less than 1"),
        ({"sequence_parallel": True}, "Set trainer.tensor_parallel > 1"),
        (
            {"optimizer_offload": 1.5, "distributed_optimizer": True},
            "trainer.optimizer_offload=1.5: not a fraction. Set it between 0 and 1",
        ),
        ({"optimizer_offload": 0.5}, "trainer.optimizer_offload=0.5: needs trainer.distributed_optimizer=true"),
        (
            {"expert_parallel": 2},
            "trainer.expert_parallel=2: must divide data_parallel x tensor_parallel x context_parallel = 1",
        ),
    ],
)
def test_what_no_model_can_have_is_refused(layout: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        require_legal(MegatronConfig(**layout))


@pytest.mark.parametrize(
    ("model", "layout", "reason"),
    [
        (TINY, {"pipeline_parallel": 3}, "trainer.pipeline_parallel=3: does not divide the model's 2 layers"),
        (TINY, {"tensor_parallel": 3}, "trainer.tensor_parallel=3: does not divide the model's 4 attention heads"),
        (TINY, {"tensor_parallel": 4}, "trainer.tensor_parallel=4: does not divide the model's 2 key-value heads"),
        (TINY | {"intermediate_size": 97}, {"tensor_parallel": 2}, "the width 97 of the model's MLP"),
        (TINY, {"data_parallel": 2, "expert_parallel": 2}, "the model has no experts"),
        (EXPERTS, {"data_parallel": 4, "expert_parallel": 4}, "does not divide the model's 6 experts"),
        (EXPERTS, {"tensor_parallel": 2}, "needs trainer.sequence_parallel=true"),
        (
            HYBRID,
            {"context_parallel": 2},
            "context_parallel=2: linear-attention layers do not support context parallelism",
        ),
        (
            HYBRID,
            {"tensor_parallel": 2},
            "trainer.tensor_parallel=2: does not divide the 1 key heads of linear attention",
        ),
    ],
)
def test_what_this_model_cannot_have_is_refused(
    tmp_path: Path, model: dict[str, Any], layout: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        require_legal(MegatronConfig(**layout), shape(tmp_path, model))


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        (TINY, {"tensor_parallel": 2, "sequence_parallel": True, "pipeline_parallel": 2, "context_parallel": 2}),
        (TINY, {"data_parallel": 3, "distributed_optimizer": True, "optimizer_offload": 0.5}),
        (EXPERTS, {"tensor_parallel": 2, "sequence_parallel": True, "data_parallel": 3, "expert_parallel": 6}),
        (HYBRID, {"data_parallel": 2, "pipeline_parallel": 2}),
    ],
)
def test_what_can_be_is_accepted(tmp_path: Path, model: dict[str, Any], layout: dict[str, Any]) -> None:
    require_legal(MegatronConfig(**layout), shape(tmp_path, model))
