"""Weights between Hugging Face's names and layout and Megatron's, both ways and bit for bit.

Megatron fuses the query, key and value projections (group by group) and the gate and up projections, and shards all of them
over the tensor-parallel ranks. One table says which tensors make which; loading and exporting both read it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rl_agent.trainer.shape import ModelShape


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

    @property
    def is_norm(self) -> bool:
        """Initialised to one."""
        return self.names[0].endswith("norm.weight")


def table(shape: ModelShape, *, fused_norms: bool) -> list[Entry]:
    """All parameters, in the order in which they are streamed.

    `fused_norms`: Transformer Engine keeps the norm before a projection as `layer_norm_weight` of that projection.
    """
    embedding = (shape.vocab, shape.hidden)
    entries = [_entry("embedding.word_embeddings.weight", Kind.ROWS, {"model.embed_tokens.weight": embedding})]
    for layer in range(shape.layers):
        entries += _layer(shape, f"decoder.layers.{layer}.", f"model.layers.{layer}.", fused_norms)
    entries.append(_entry("decoder.final_layernorm.weight", Kind.WHOLE, {"model.norm.weight": (shape.hidden,)}))
    if not shape.tied:
        entries.append(_entry("output_layer.weight", Kind.ROWS, {"lm_head.weight": embedding}))
    return entries


def _layer(shape: ModelShape, ours: str, theirs: str, fused_norms: bool) -> list[Entry]:
    query, key = shape.heads * shape.head_dim, shape.groups * shape.head_dim
    attention, mlp = f"{theirs}self_attn.", f"{theirs}mlp."
    qkv = {f"{attention}{n}_proj.": rows for n, rows in (("q", query), ("k", key), ("v", key))}
    before_attention, before_mlp = (
        ("self_attention.linear_qkv.layer_norm_weight", "mlp.linear_fc1.layer_norm_weight")
        if fused_norms
        else ("input_layernorm.weight", "pre_mlp_layernorm.weight")
    )
    norms = [
        (before_attention, f"{theirs}input_layernorm.weight", shape.hidden),
        (before_mlp, f"{theirs}post_attention_layernorm.weight", shape.hidden),
    ]
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
    gate_up = {f"{mlp}{name}_proj.weight": (shape.ffn, shape.hidden) for name in ("gate", "up")}
    return [
        *entries,
        _entry(
            f"{ours}self_attention.linear_proj.weight",
            Kind.COLUMNS,
            {f"{attention}o_proj.weight": (shape.hidden, query)},
        ),
        _entry(f"{ours}mlp.linear_fc1.weight", Kind.GATE_UP, gate_up),
        _entry(f"{ours}mlp.linear_fc2.weight", Kind.COLUMNS, {f"{mlp}down_proj.weight": (shape.hidden, shape.ffn)}),
    ]


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


def random_tensors(entries: Sequence[Entry], std: float, seed: int) -> dict[str, torch.Tensor]:
    """Fresh weights, like Hugging Face's: normal matrices, norms of one, biases of zero.

    Each tensor has its own generator, so the values do not depend on the parallel layout.
    """
    tensors = {}
    for entry in entries:
        for name, size in zip(entry.names, entry.shapes, strict=True):
            if entry.is_norm:
                tensors[name] = torch.ones(size)
            elif name.endswith(".bias"):
                tensors[name] = torch.zeros(size)
            else:
                generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
                tensors[name] = torch.empty(size).normal_(std=std, generator=generator)
    return tensors


@torch.no_grad()
def load_tensors(
    model: Any,
    entries: Sequence[Entry],
    tensors: Mapping[str, torch.Tensor],
    shape: ModelShape,
    group: dist.ProcessGroup,
) -> None:
    """Copy Hugging Face tensors into this rank's shard of the model. Raises ConfigError naming a misshapen one."""
    parameters = dict(model.named_parameters())
    for entry in entries:
        parts = []
        for name, size in zip(entry.names, entry.shapes, strict=True):
            part = tensors[name]
            if tuple(part.shape) != size:
                raise ConfigError(
                    f"tensor `{name}` has shape {list(part.shape)}, but config.json asks for {list(size)}"
                )
            parts.append(part)
        own = _merge(entry.kind, parts, shape, dist.get_rank(group), dist.get_world_size(group))
        parameters.pop(entry.megatron).copy_(own)
    if parameters:
        raise ConfigError(f"no Hugging Face tensor makes the model's parameters {sorted(parameters)}")


@torch.no_grad()
def named_tensors(
    model: Any, entries: Sequence[Entry], shape: ModelShape, group: dist.ProcessGroup
) -> Iterator[tuple[str, torch.Tensor]]:
    """The model's weights as Hugging Face tensors, one after the other. All tensor-parallel ranks iterate together."""
    parameters = dict(model.named_parameters())
    for entry in entries:
        own = parameters[entry.megatron].detach()
        shards = [own]
        if dist.get_world_size(group) > 1 and entry.kind is not Kind.WHOLE:
            shards = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
            dist.all_gather(shards, own.contiguous(), group=group)
        for name, size, tensor in zip(entry.names, entry.shapes, _split(entry.kind, shards, shape), strict=True):
            yield name, tensor[: size[0]].contiguous()


def _merge(kind: Kind, parts: Sequence[torch.Tensor], shape: ModelShape, rank: int, ranks: int) -> torch.Tensor:
    """This rank's shard of a Megatron parameter."""
    if kind is Kind.WHOLE:
        return parts[0]
    if kind is Kind.COLUMNS:
        return parts[0].chunk(ranks, 1)[rank]
    if kind is Kind.GATE_UP:
        return torch.cat([part.chunk(ranks)[rank] for part in parts])
    if kind is Kind.ROWS:
        missing = -len(parts[0]) % ranks
        whole = torch.cat([parts[0], parts[0].new_zeros(missing, *parts[0].shape[1:])]) if missing else parts[0]
        return whole.chunk(ranks)[rank]
    by_group = [part.view(shape.groups, -1, *part.shape[1:]) for part in parts]
    return torch.cat(by_group, 1).flatten(0, 1).chunk(ranks)[rank]


def _split(kind: Kind, shards: Sequence[torch.Tensor], shape: ModelShape) -> list[torch.Tensor]:
    """The inverse of `_merge`, from the shards of all ranks."""
    if kind is Kind.WHOLE:
        return [shards[0]]
    if kind is Kind.COLUMNS:
        return [torch.cat(list(shards), 1)]
    if kind is Kind.GATE_UP:
        halves = [shard.chunk(2) for shard in shards]
        return [torch.cat([half[i] for half in halves]) for i in range(2)]
    whole = torch.cat(list(shards))
    if kind is Kind.ROWS:
        return [whole]
    by_group = whole.view(shape.groups, -1, shape.head_dim, *whole.shape[1:])
    query = shape.heads // shape.groups
    return [part.flatten(0, 2) for part in torch.split(by_group, [query, 1, 1], 1)]
