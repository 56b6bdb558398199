"""Table of Megatron parameters and the Hugging Face tensors that make them, for both loading and exporting.

Parameters have the names of a model on a single rank: layers and experts have global numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import torch
from typing_extensions import override

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rl_agent.trainer.shape import ExpertShape, ModelShape

EMBEDDING: Final = "embedding.word_embeddings.weight"
OUTPUT: Final = "output_layer.weight"
NOT_TRAINED: Final = ("model.visual.", "mtp.")
"""Name prefixes of checkpoint tensors that are not part of the language model."""


class TensorKind(Enum):
    """Conversion of Hugging Face tensors to a Megatron parameter, and its sharding axis."""

    WHOLE = auto()
    """The tensor itself, with a copy on every rank."""
    ROWS = auto()
    """The tensor itself, sharded by rows and padded to a multiple of the ranks."""
    COLUMNS = auto()
    """The tensor itself, sharded by columns."""
    QKV = auto()
    """Query, key and value heads, interleaved by group and sharded by rows. The heads of a gate follow those of the
    query."""
    BLOCKS = auto()
    """Blocks of rows, stacked within each shard, for example the gate and up projections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One Megatron parameter and its Hugging Face tensors."""

    megatron: str
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    kind: TensorKind
    blocks: tuple[int, ...] = ()
    """Number of rows of each block."""
    layer: int | None = None
    """Layer of the parameter, or None."""
    expert: int | None = None
    """Expert of the parameter, or None. See `layout.expert_tensor_parallel` for its sharding."""

    @property
    def is_norm(self) -> bool:
        """True if the parameter is initialized to one."""
        return self.names[0].endswith("norm.weight")


def table(shape: ModelShape, *, fused_norms: bool) -> list[TensorEntry]:
    """Return all parameters in streaming order.

    `fused_norms`: Transformer Engine keeps the norm before a projection as `layer_norm_weight` of that projection.
    """
    embedding = (shape.vocab, shape.hidden)
    entries = [_entry(EMBEDDING, TensorKind.ROWS, {f"{shape.prefix}embed_tokens.weight": embedding})]
    for layer in range(shape.layers):
        entries += _layer(shape, layer, fused_norms)
    entries.append(
        _entry("decoder.final_layernorm.weight", TensorKind.WHOLE, {f"{shape.prefix}norm.weight": (shape.hidden,)})
    )
    if not shape.tied:
        entries.append(_entry(OUTPUT, TensorKind.ROWS, {"lm_head.weight": embedding}))
    return entries


def _layer(shape: ModelShape, layer: int, fused_norms: bool) -> list[TensorEntry]:
    ours, theirs = f"decoder.layers.{layer}.", f"{shape.prefix}layers.{layer}."
    linear = shape.linear is not None and shape.linear.layers[layer]
    projection = "self_attention.in_proj" if linear else "self_attention.linear_qkv"
    # Transformer Engine fuses the norm into a dense MLP, but not into a mixture of experts
    fused_mlp = fused_norms and shape.experts is None
    norms = {
        f"{projection}.layer_norm_weight" if fused_norms else "input_layernorm.weight": "input_layernorm",
        "mlp.linear_fc1.layer_norm_weight" if fused_mlp else "pre_mlp_layernorm.weight": "post_attention_layernorm",
    }
    entries = [_entry(ours + a, TensorKind.WHOLE, {f"{theirs}{b}.weight": (shape.hidden,)}) for a, b in norms.items()]
    attention = _linear_attention if linear else _attention
    entries += attention(shape, f"{ours}self_attention.", theirs)
    if shape.experts is None:
        entries += _mlp(f"{ours}mlp.", f"{theirs}mlp.", shape.hidden, shape.ffn)
    else:
        entries += _experts(shape.experts, shape.hidden, f"{ours}mlp.", f"{theirs}mlp.")
    return [replace(entry, layer=layer) for entry in entries]


def _attention(shape: ModelShape, ours: str, theirs: str) -> list[TensorEntry]:
    query, key = shape.heads * shape.head_dim, shape.groups * shape.head_dim
    theirs += "self_attn."
    with_gate = query * 2 if shape.output_gate else query
    qkv = {f"{theirs}{n}_proj.": rows for n, rows in (("q", with_gate), ("k", key), ("v", key))}
    norms = {"q_layernorm": "q_norm", "k_layernorm": "k_norm"} if shape.qk_norm else {}
    entries = [
        _entry(f"{ours}{a}.weight", TensorKind.WHOLE, {f"{theirs}{b}.weight": (shape.head_dim,)})
        for a, b in norms.items()
    ]
    weights = {f"{name}weight": (rows, shape.hidden) for name, rows in qkv.items()}
    entries.append(_entry(f"{ours}linear_qkv.weight", TensorKind.QKV, weights))
    if shape.qkv_bias:
        entries.append(
            _entry(f"{ours}linear_qkv.bias", TensorKind.QKV, {f"{n}bias": (rows,) for n, rows in qkv.items()})
        )
    output = {f"{theirs}o_proj.weight": (shape.hidden, query)}
    return [*entries, _entry(f"{ours}linear_proj.weight", TensorKind.COLUMNS, output)]


def _linear_attention(shape: ModelShape, ours: str, theirs: str) -> list[TensorEntry]:
    linear = shape.linear
    assert linear is not None
    theirs += "linear_attn."
    qkv = (linear.query_size, linear.query_size, linear.value_size)
    heads = linear.value_heads
    rows = {"qkv": sum(qkv), "z": linear.value_size, "b": heads, "a": heads}
    projections = {f"{theirs}in_proj_{name}.weight": (count, shape.hidden) for name, count in rows.items()}
    convolution = {f"{theirs}conv1d.weight": (sum(qkv), 1, linear.convolution)}
    output = {f"{theirs}out_proj.weight": (shape.hidden, linear.value_size)}
    return [
        _entry(f"{ours}in_proj.weight", TensorKind.BLOCKS, projections, (*qkv, linear.value_size, heads, heads)),
        _entry(f"{ours}conv1d.weight", TensorKind.BLOCKS, convolution, qkv),
        _entry(f"{ours}dt_bias", TensorKind.ROWS, {f"{theirs}dt_bias": (heads,)}),
        _entry(f"{ours}A_log", TensorKind.ROWS, {f"{theirs}A_log": (heads,)}),
        _entry(f"{ours}out_norm.weight", TensorKind.WHOLE, {f"{theirs}norm.weight": (linear.value_dim,)}),
        _entry(f"{ours}out_proj.weight", TensorKind.COLUMNS, output),
    ]


def _mlp(ours: str, theirs: str, hidden: int, ffn: int) -> list[TensorEntry]:
    gate_up = {f"{theirs}{name}_proj.weight": (ffn, hidden) for name in ("gate", "up")}
    return [
        _entry(f"{ours}linear_fc1.weight", TensorKind.BLOCKS, gate_up, (ffn, ffn)),
        _entry(f"{ours}linear_fc2.weight", TensorKind.COLUMNS, {f"{theirs}down_proj.weight": (hidden, ffn)}),
    ]


def _experts(experts: ExpertShape, hidden: int, ours: str, theirs: str) -> list[TensorEntry]:
    entries = [_entry(f"{ours}router.weight", TensorKind.WHOLE, {f"{theirs}gate.weight": (experts.count, hidden)})]
    for number in range(experts.count):
        parts = _mlp(f"{ours}experts.{number}.", f"{theirs}experts.{number}.", hidden, experts.ffn)
        entries += [replace(part, expert=number) for part in parts]
    if experts.shared_ffn is not None:
        entries += _mlp(f"{ours}shared_experts.", f"{theirs}shared_expert.", hidden, experts.shared_ffn)
        gate = {f"{theirs}shared_expert_gate.weight": (1, hidden)}
        entries.append(_entry(f"{ours}shared_experts.gate_weight", TensorKind.WHOLE, gate))
    return entries


def _entry(
    megatron: str, kind: TensorKind, tensors: Mapping[str, tuple[int, ...]], blocks: tuple[int, ...] = ()
) -> TensorEntry:
    return TensorEntry(
        megatron=megatron, names=tuple(tensors), shapes=tuple(tensors.values()), kind=kind, blocks=blocks
    )


def check_names(entries: Sequence[TensorEntry], present: Sequence[str], where: str) -> None:
    """Raise ConfigError if a checkpoint has missing or unknown tensors."""
    wanted = {name for entry in entries for name in entry.names}
    # old exports contain rotary frequencies, and tied ones the output layer; both are redundant
    known = {n for n in present if n.endswith("rotary_emb.inv_freq") or n.startswith(NOT_TRAINED)} | {"lm_head.weight"}
    missing, extra = sorted(wanted - set(present)), sorted(set(present) - wanted - known)
    if missing or extra:
        raise ConfigError(
            f"{where}: the weights do not match config.json: missing {missing or 'nothing'}, "
            f"unknown {extra or 'nothing'}. Use a complete Hugging Face folder of one model."
        )


class RandomTensors(Mapping[str, torch.Tensor]):
    """Random weights as in Hugging Face: normal matrices, norms with scale one, zero biases. Each is created on access.

    Each tensor has its own generator, so the values do not depend on the parallel layout.
    """

    def __init__(self, entries: Sequence[TensorEntry], shape: ModelShape, *, seed: int) -> None:
        self._sizes = {n: size for entry in entries for n, size in zip(entry.names, entry.shapes, strict=True)}
        self._norms = {n for entry in entries if entry.is_norm for n in entry.names}
        self._shape = shape
        self._seed = seed

    @override
    def __getitem__(self, name: str) -> torch.Tensor:
        size = self._sizes[name]
        if name in self._norms:
            one_plus_weight = self._shape.zero_centred_norms and not name.endswith("linear_attn.norm.weight")
            return torch.zeros(size) if one_plus_weight else torch.ones(size)
        if name.endswith("dt_bias"):
            return torch.ones(size)
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self._seed} {name}".encode()))
        if name.endswith("A_log"):
            return torch.empty(size).uniform_(1, 16, generator=generator).log()
        if name.endswith(".bias"):
            return torch.zeros(size)
        return torch.empty(size).normal_(std=self._shape.init_std, generator=generator)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    @override
    def __len__(self) -> int:
        return len(self._sizes)
