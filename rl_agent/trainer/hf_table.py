"""Which Hugging Face tensors make which Megatron parameter: one table, which loading and exporting both read.

Parameters have the names that they would have if one rank held the whole model: layers and experts are numbered through.
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

    from rl_agent.trainer.shape import ModelShape

EMBEDDING: Final = "embedding.word_embeddings.weight"
OUTPUT: Final = "output_layer.weight"


class Kind(Enum):
    """How Hugging Face tensors make a Megatron parameter, and along which axis it is sharded."""

    WHOLE = auto()
    """The same tensor, a copy on every rank."""
    ROWS = auto()
    """The same tensor, sharded by rows and padded to a multiple of the ranks."""
    COLUMNS = auto()
    """The same tensor, sharded by columns."""
    QKV = auto()
    """Query, key and value heads, interleaved group by group; sharded by rows."""
    GATE_UP = auto()
    """Gate and up projection, one below the other within each shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One Megatron parameter and the Hugging Face tensors that make it."""

    megatron: str
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    kind: Kind
    layer: int | None = None
    """The layer that it belongs to."""
    expert: int | None = None
    """The expert that it belongs to; see `layout.expert_tensor_parallel` for its sharding."""

    @property
    def is_norm(self) -> bool:
        """Initialised to one."""
        return self.names[0].endswith("norm.weight")


def table(shape: ModelShape, *, fused_norms: bool) -> list[Entry]:
    """All parameters, in the order in which they are streamed.

    `fused_norms`: Transformer Engine keeps the norm before a projection as `layer_norm_weight` of that projection.
    """
    embedding = (shape.vocab, shape.hidden)
    entries = [_entry(EMBEDDING, Kind.ROWS, {"model.embed_tokens.weight": embedding})]
    for layer in range(shape.layers):
        entries += _layer(shape, layer, fused_norms)
    entries.append(_entry("decoder.final_layernorm.weight", Kind.WHOLE, {"model.norm.weight": (shape.hidden,)}))
    if not shape.tied:
        entries.append(_entry(OUTPUT, Kind.ROWS, {"lm_head.weight": embedding}))
    return entries


def _layer(shape: ModelShape, layer: int, fused_norms: bool) -> list[Entry]:
    ours, theirs = f"decoder.layers.{layer}.", f"model.layers.{layer}."
    # Transformer Engine has a layer that fuses the norm before a dense MLP, and none for a mixture of experts
    norm = f"{theirs}post_attention_layernorm.weight"
    before_mlp = (
        "mlp.linear_fc1.layer_norm_weight" if fused_norms and shape.experts is None else "pre_mlp_layernorm.weight"
    )
    entries = _attention(shape, ours, theirs, fused_norms)
    entries.append(_entry(ours + before_mlp, Kind.WHOLE, {norm: (shape.hidden,)}))
    entries += (
        _mlp(f"{ours}mlp.", f"{theirs}mlp.", shape.hidden, shape.ffn)
        if shape.experts is None
        else _experts(shape, ours, theirs)
    )
    return [replace(entry, layer=layer) for entry in entries]


def _attention(shape: ModelShape, ours: str, theirs: str, fused_norms: bool) -> list[Entry]:
    query, key = shape.heads * shape.head_dim, shape.groups * shape.head_dim
    attention = f"{theirs}self_attn."
    qkv = {f"{attention}{n}_proj.": rows for n, rows in (("q", query), ("k", key), ("v", key))}
    before = "self_attention.linear_qkv.layer_norm_weight" if fused_norms else "input_layernorm.weight"
    norms = [(before, f"{theirs}input_layernorm.weight", shape.hidden)]
    if shape.qk_norm:
        norms += [
            ("self_attention.q_layernorm.weight", f"{attention}q_norm.weight", shape.head_dim),
            ("self_attention.k_layernorm.weight", f"{attention}k_norm.weight", shape.head_dim),
        ]
    entries = [_entry(ours + name, Kind.WHOLE, {other: (size,)}) for name, other, size in norms]
    weights = {f"{name}weight": (rows, shape.hidden) for name, rows in qkv.items()}
    entries.append(_entry(f"{ours}self_attention.linear_qkv.weight", Kind.QKV, weights))
    if shape.qkv_bias:
        biases = {f"{name}bias": (rows,) for name, rows in qkv.items()}
        entries.append(_entry(f"{ours}self_attention.linear_qkv.bias", Kind.QKV, biases))
    output = {f"{attention}o_proj.weight": (shape.hidden, query)}
    return [*entries, _entry(f"{ours}self_attention.linear_proj.weight", Kind.COLUMNS, output)]


def _mlp(ours: str, theirs: str, hidden: int, ffn: int) -> list[Entry]:
    gate_up = {f"{theirs}{name}_proj.weight": (ffn, hidden) for name in ("gate", "up")}
    return [
        _entry(f"{ours}linear_fc1.weight", Kind.GATE_UP, gate_up),
        _entry(f"{ours}linear_fc2.weight", Kind.COLUMNS, {f"{theirs}down_proj.weight": (hidden, ffn)}),
    ]


def _experts(shape: ModelShape, ours: str, theirs: str) -> list[Entry]:
    experts = shape.experts
    assert experts is not None
    router = {f"{theirs}mlp.gate.weight": (experts.count, shape.hidden)}
    entries = [_entry(f"{ours}mlp.router.weight", Kind.WHOLE, router)]
    for number in range(experts.count):
        parts = _mlp(f"{ours}mlp.experts.{number}.", f"{theirs}mlp.experts.{number}.", shape.hidden, experts.ffn)
        entries += [replace(part, expert=number) for part in parts]
    return entries


def _entry(megatron: str, kind: Kind, tensors: Mapping[str, tuple[int, ...]]) -> Entry:
    return Entry(megatron=megatron, names=tuple(tensors), shapes=tuple(tensors.values()), kind=kind)


def check_names(entries: Sequence[Entry], present: Sequence[str], where: str) -> None:
    """Refuse a checkpoint that lacks a tensor or has one that the model does not know."""
    wanted = {name for entry in entries for name in entry.names}
    # old exports carry the rotary frequencies, and tied ones the output layer: both follow from the rest
    known = {n for n in present if n.endswith("rotary_emb.inv_freq")} | {"lm_head.weight"}
    missing, extra = sorted(wanted - set(present)), sorted(set(present) - wanted - known)
    if missing or extra:
        raise ConfigError(
            f"the weights in {where} do not fit config.json: missing {missing or 'nothing'}, unknown {extra or 'nothing'}"
        )


class RandomTensors(Mapping[str, torch.Tensor]):
    """Fresh weights, like Hugging Face's: normal matrices, norms of one, biases of zero; each made when asked for.

    Each tensor has its own generator, so the values do not depend on the parallel layout.
    """

    def __init__(self, entries: Sequence[Entry], *, std: float, seed: int) -> None:
        self._shapes = {
            name: (size, entry.is_norm)
            for entry in entries
            for name, size in zip(entry.names, entry.shapes, strict=True)
        }
        self._std = std
        self._seed = seed

    @override
    def __getitem__(self, name: str) -> torch.Tensor:
        size, is_norm = self._shapes[name]
        if is_norm:
            return torch.ones(size)
        if name.endswith(".bias"):
            return torch.zeros(size)
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self._seed} {name}".encode()))
        return torch.empty(size).normal_(std=self._std, generator=generator)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    @override
    def __len__(self) -> int:
        return len(self._shapes)
