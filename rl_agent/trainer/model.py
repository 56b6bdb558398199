"""The Megatron model of a shape: its configuration and layer spec."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
from torch.nn import functional

from rl_agent.config.trainer import Precision
from rl_agent.trainer.layers import PackedAttention, RMSNorm
from rl_agent.trainer.layout import expert_tensor_parallel
from rl_agent.trainer.linear_attention import linear_attention_layer
from rl_agent.trainer.output import give_hidden_states

if TYPE_CHECKING:
    from rl_agent.trainer.megatron import MegatronConfig
    from rl_agent.trainer.shape import ModelShape


def build_model(shape: ModelShape, config: MegatronConfig, device: torch.device) -> Any:
    """Build a GPTModel without loaded weights. It returns hidden states, see `output`."""
    transformer = transformer_config(shape, config, device)
    model = GPTModel(
        transformer,
        _layer_specs(transformer, device),
        vocab_size=padded_vocab(shape, config),
        max_sequence_length=shape.positions,
        share_embeddings_and_output_weights=shape.tied,
        position_embedding_type="rope",
        rotary_percent=shape.rope_share,
        rotary_base=shape.rope_theta,
        rope_scaling=shape.rope_factor is not None,
        rope_scaling_factor=shape.rope_factor or 1.0,
        parallel_output=True,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    )
    give_hidden_states(model)
    return model.to(device)


def padded_vocab(shape: ModelShape, config: MegatronConfig) -> int:
    """Return the number of embedding rows, padded so that all tensor-parallel ranks hold equally many."""
    return math.ceil(shape.vocab / config.tensor_parallel) * config.tensor_parallel


def transformer_config(shape: ModelShape, config: MegatronConfig, device: torch.device) -> TransformerConfig:
    """Return Megatron's configuration. On a CPU it uses no fused kernel."""
    dtype = torch.bfloat16 if config.precision is Precision.bfloat16 else torch.float32
    fused = device.type == "cuda"
    recompute: dict[str, Any] = (
        {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        if config.recompute
        else {}
    )
    return TransformerConfig(
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        ffn_hidden_size=shape.ffn,
        num_attention_heads=shape.heads,
        num_query_groups=shape.groups,
        kv_channels=shape.head_dim,
        normalization="RMSNorm",
        layernorm_epsilon=shape.norm_eps,
        qk_layernorm=shape.qk_norm,
        add_qkv_bias=shape.qkv_bias,
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=functional.silu,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=config.tensor_parallel,
        pipeline_model_parallel_size=config.pipeline_parallel,
        context_parallel_size=config.context_parallel,
        expert_model_parallel_size=config.expert_parallel,
        sequence_parallel=config.sequence_parallel,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=config.precision is Precision.bfloat16,
        perform_initialization=True,  # the values are replaced, but it also marks which parameters are shards
        use_cpu_initialization=not fused,
        masked_softmax_fusion=False,
        bias_activation_fusion=fused,
        bias_dropout_fusion=False,
        apply_rope_fusion=fused,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        attention_softmax_in_fp32=True,
        variable_seq_lengths=True,
        calculate_per_token_loss=True,
        moe_token_dispatcher_type="alltoall",  # noqa: S106  "token" as in text; checked even for dense models
        layernorm_zero_centered_gamma=shape.zero_centred_norms,
        attention_output_gate=shape.output_gate,
        **_mixture(shape, config, fused=fused),
        **_linear_attention(shape, fused=fused),
        **recompute,
    )


def _mixture(shape: ModelShape, config: MegatronConfig, *, fused: bool) -> dict[str, Any]:
    """Return Megatron's options for experts, without a balancing loss, since the algorithm alone defines the loss."""
    if shape.experts is None:
        return {}
    return {
        "num_moe_experts": shape.experts.count,
        "moe_router_topk": shape.experts.chosen,
        "moe_ffn_hidden_size": shape.experts.ffn,
        # softmax over the chosen experts equals the normalized softmax over all
        "moe_router_pre_softmax": not shape.experts.normalised,
        "moe_router_load_balancing_type": "none",
        "moe_router_dtype": "fp32",
        "moe_aux_loss_coeff": 0.0,
        "moe_grouped_gemm": fused,
        "expert_tensor_parallel_size": expert_tensor_parallel(config),
        "moe_shared_expert_intermediate_size": shape.experts.shared_ffn,
        "moe_shared_expert_gate": shape.experts.shared_ffn is not None,
    }


def _linear_attention(shape: ModelShape, *, fused: bool) -> dict[str, Any]:
    if shape.linear is None:
        return {}
    return {
        "experimental_attention_variant": "gated_delta_net",
        "linear_attention_freq": [int(linear) for linear in shape.linear.layers],
        "linear_conv_kernel_dim": shape.linear.convolution,
        "linear_key_head_dim": shape.linear.key_dim,
        "linear_value_head_dim": shape.linear.value_dim,
        "linear_num_key_heads": shape.linear.key_heads,
        "linear_num_value_heads": shape.linear.value_heads,
        "deterministic_mode": not fused,  # the other mode has kernels for GPUs only
    }


def _layer_specs(transformer: TransformerConfig, device: torch.device) -> Any:
    """Return the layer spec: Transformer Engine on a GPU, else Megatron's local layers with those of `layers`."""
    experts, gpu = transformer.num_moe_experts, device.type == "cuda"
    if gpu:
        softmax = get_gpt_layer_with_transformer_engine_spec(
            num_experts=experts, moe_grouped_gemm=experts is not None, qk_layernorm=transformer.qk_layernorm
        )
        from megatron.core.extensions.transformer_engine import TENorm  # noqa: PLC0415  (GPUs only)

        norm = TENorm
    else:
        softmax = _local_layer(transformer)
        norm = RMSNorm
    flags = transformer.linear_attention_freq
    first = get_transformer_layer_offset(transformer)
    count = get_num_layers_to_build(transformer)
    if flags is None:
        layers = [softmax] * count
    else:
        linear = linear_attention_layer(softmax, gpu=gpu)
        layers = [linear if flag else softmax for flag in flags[first : first + count]]
    return TransformerBlockSubmodules(layer_specs=layers, layer_norm=norm)


def _local_layer(transformer: TransformerConfig) -> Any:
    layer = get_gpt_layer_local_spec(
        num_experts=transformer.num_moe_experts, qk_layernorm=transformer.qk_layernorm, normalization="RMSNorm"
    )
    parts = layer.submodules
    parts.input_layernorm = parts.pre_mlp_layernorm = RMSNorm
    attention = parts.self_attention.submodules
    attention.core_attention = PackedAttention
    if transformer.qk_layernorm:
        attention.q_layernorm = attention.k_layernorm = RMSNorm
    return layer
