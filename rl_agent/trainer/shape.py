"""The shape of a model, read from the config.json of a Hugging Face folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FAMILIES: Final = ("qwen3", "qwen3_moe", "qwen2", "llama", "qwen3_5_text", "qwen3_5_moe_text")
WITH_VISION: Final = ("qwen3_5", "qwen3_5_moe")
"""Multimodal models whose language model is one of `FAMILIES`, with its own name and config. Only the language model is
trained."""
HYBRID: Final = ("qwen3_5_text", "qwen3_5_moe_text")
WITH_EXPERTS: Final = ("qwen3_moe", "qwen3_5_moe_text")
LLAMA3_SCALING: Final = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Parameters of Llama 3.1's rope scaling that are fixed in Megatron. Only the factor is configurable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShape:
    """Mixture of experts, which replaces the MLP of every layer."""

    count: int
    chosen: int
    """Number of experts per token."""
    ffn: int
    """Intermediate size of one expert."""
    normalised: bool
    """True if the weights of the chosen experts sum to 1."""
    shared_ffn: int | None
    """Intermediate size of the gated shared expert, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttentionShape:
    """Gated delta rule (arXiv 2412.06464), which replaces softmax attention in most layers."""

    layers: tuple[bool, ...]
    """For each layer, True if it has linear attention."""
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    convolution: int
    """Width of the causal convolution in tokens."""

    @property
    def query_size(self) -> int:
        """Total width of the query heads, equal to that of the key heads."""
        return self.key_heads * self.key_dim

    @property
    def value_size(self) -> int:
        """Total width of the value heads."""
        return self.value_heads * self.value_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Shape of a decoder with rotary positions, grouped-query attention, and a gated SiLU MLP or experts."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    groups: int
    """Number of key-value heads."""
    head_dim: int
    vocab: int
    tied: bool
    """True if the output layer shares the embedding."""
    qk_norm: bool
    qkv_bias: bool
    norm_eps: float
    rope_theta: float
    rope_factor: float | None
    """Factor of Llama 3.1's rope scaling, or None."""
    positions: int
    init_std: float
    """Standard deviation of randomly initialized matrices."""
    experts: ExpertShape | None
    """None for a dense model."""
    linear: LinearAttentionShape | None
    """None for softmax attention throughout."""
    output_gate: bool
    """True if the sigmoid of a second query gates the output of attention."""
    rope_share: float
    """Fraction of a head's dimensions that is rotated."""
    prefix: str
    """Prefix of the weight names."""

    @property
    def zero_centred_norms(self) -> bool:
        """RMSNorm weights are stored as an offset from 1, except inside linear attention."""
        return self.linear is not None


def read_shape(folder: Path) -> ModelShape:
    """Read the shape from `folder/config.json`. Raises ConfigError with the first unsupported setting."""
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}. Set model.path to a Hugging Face folder.") from error
    return shape_of(raw, path)


def shape_of(raw: Mapping[str, Any], path: Path) -> ModelShape:
    """Read the shape from the content of a config.json.

    Raises ConfigError with `path` and the first unsupported setting.
    """
    family, prefix = raw.get("model_type"), "model."
    if family in WITH_VISION:
        raw, prefix = {"tie_word_embeddings": False, **raw, **raw["text_config"]}, "model.language_model."
        family = raw["model_type"]
    if family not in FAMILIES:
        raise ConfigError(
            f"{path}: model_type `{family}` is not supported by the trainer. "
            f"Supported: {', '.join(FAMILIES + WITH_VISION)}."
        )
    _refuse_unsupported(path, raw, family)
    heads = raw["num_attention_heads"]
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    return ModelShape(
        layers=raw["num_hidden_layers"],
        hidden=raw["hidden_size"],
        ffn=raw["moe_intermediate_size"] if family in WITH_EXPERTS else raw["intermediate_size"],
        heads=heads,
        groups=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or (128 if family == "qwen3" else raw["hidden_size"] // heads),
        vocab=raw["vocab_size"],
        tied=bool(raw.get("tie_word_embeddings", False)),
        qk_norm=family in ("qwen3", "qwen3_moe", *HYBRID),
        qkv_bias=family == "qwen2",
        norm_eps=raw.get("rms_norm_eps", 1e-6),
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0),
        rope_factor=_rope_factor(path, rope),
        positions=raw.get("max_position_embeddings", 32768),
        init_std=raw.get("initializer_range", 0.02),
        experts=_experts(path, raw) if family in WITH_EXPERTS else None,
        linear=_linear_attention(raw) if family in HYBRID else None,
        output_gate=family in HYBRID,
        rope_share=rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0,
        prefix=prefix,
    )


def _experts(path: Path, raw: Mapping[str, Any]) -> ExpertShape:
    if raw.get("decoder_sparse_step", 1) != 1 or raw.get("mlp_only_layers"):
        raise ConfigError(f"{path}: dense layers between layers with experts are not supported by the trainer.")
    return ExpertShape(
        count=raw.get("num_experts") or raw["num_local_experts"],
        chosen=raw["num_experts_per_tok"],
        ffn=raw["moe_intermediate_size"],
        normalised=raw["model_type"] in HYBRID or bool(raw.get("norm_topk_prob", False)),
        shared_ffn=raw.get("shared_expert_intermediate_size"),
    )


def _linear_attention(raw: Mapping[str, Any]) -> LinearAttentionShape:
    every = raw.get("full_attention_interval", 4)
    kinds = raw.get("layer_types") or [
        "full_attention" if layer % every == every - 1 else "linear_attention"
        for layer in range(raw["num_hidden_layers"])
    ]
    return LinearAttentionShape(
        layers=tuple(kind == "linear_attention" for kind in kinds),
        key_heads=raw["linear_num_key_heads"],
        value_heads=raw["linear_num_value_heads"],
        key_dim=raw["linear_key_head_dim"],
        value_dim=raw["linear_value_head_dim"],
        convolution=raw["linear_conv_kernel_dim"],
    )


def _refuse_unsupported(path: Path, raw: Mapping[str, Any], family: str) -> None:
    activation = raw.get("hidden_act", "silu")
    if activation != "silu":
        raise ConfigError(f"{path}: hidden_act `{activation}` is not supported by the trainer. Supported: `silu`.")
    switches = ["use_sliding_window", "mlp_bias"] + ([] if family == "qwen2" else ["attention_bias"])
    for name in switches:
        if raw.get(name):
            raise ConfigError(f"{path}: `{name}: true` is not supported by the trainer.")


def _rope_factor(path: Path, rope: Mapping[str, Any]) -> float | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    differing = [name for name, value in LLAMA3_SCALING.items() if rope.get(name) != value]
    if kind != "llama3" or differing:
        raise ConfigError(f"{path}: rope scaling {dict(rope)} is not supported by the trainer.")
    return float(rope["factor"])
