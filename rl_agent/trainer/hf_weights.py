"""Exact conversion of weights between Hugging Face's layout and this rank's part of a Megatron model, both ways.

Megatron fuses the query, key and value projections (group by group) and the gate and up projections. It shards all of
them over the tensor-parallel ranks, layers over pipeline stages, and experts over expert-parallel ranks. Conversion
gathers one parameter at a time, never the whole model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from rl_agent.errors import ConfigError
from rl_agent.trainer.hf_table import EMBEDDING, OUTPUT, TensorKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rl_agent.trainer.hf_table import TensorEntry
    from rl_agent.trainer.shape import ModelShape

_LAYER: Final = re.compile(r"(?<=^decoder\.layers\.)\d+")
_LOCAL_EXPERT: Final = re.compile(r"\.experts\.local_experts\.(\d+)\.")
_GROUPED_EXPERTS: Final = re.compile(r"\.experts\.(linear_fc\d)\.weight(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Part of the model that this rank holds."""

    shape: ModelShape

    @property
    def _layers(self) -> int:
        return self.shape.layers // int(parallel_state.get_pipeline_model_parallel_world_size())

    @property
    def _experts(self) -> int:
        count = self.shape.experts.count if self.shape.experts else 0
        return count // int(parallel_state.get_expert_model_parallel_world_size())

    def stage(self, entry: TensorEntry) -> int:
        """Return the pipeline stage that holds a parameter."""
        if entry.layer is not None:
            return entry.layer // self._layers
        return 0 if entry.megatron == EMBEDDING else int(parallel_state.get_pipeline_model_parallel_world_size()) - 1

    def expert_rank(self, entry: TensorEntry) -> int | None:
        """Return the expert-parallel rank that holds a parameter, or None if all hold it."""
        return None if entry.expert is None else entry.expert // self._experts

    def parameters(self, model: Any) -> dict[str, Any]:
        """Return this rank's parameters by their names in the table."""
        return {self._name(name): parameter for name, parameter in model.named_parameters()}

    def _name(self, local: str) -> str:
        first_layer = parallel_state.get_pipeline_model_parallel_rank() * self._layers
        first_expert = parallel_state.get_expert_model_parallel_rank() * self._experts
        name = _LAYER.sub(lambda found: str(int(found[0]) + first_layer), local)
        name = _LOCAL_EXPERT.sub(lambda found: f".experts.{int(found[1]) + first_expert}.", name)
        return _GROUPED_EXPERTS.sub(lambda found: f".experts.{int(found[2]) + first_expert}.{found[1]}.weight", name)


@torch.no_grad()
def load_tensors(
    model: Any, entries: Sequence[TensorEntry], tensors: Mapping[str, torch.Tensor], shape: ModelShape
) -> None:
    """Copy Hugging Face tensors into this rank's part of the model.

    Raises ConfigError for a tensor of the wrong shape.
    """
    parameters = Placement(shape=shape).parameters(model)
    for entry in entries:
        own = [parameters.pop(entry.megatron)] if entry.megatron in parameters else []
        if entry.megatron == EMBEDDING and shape.tied and OUTPUT in parameters:
            own.append(parameters.pop(OUTPUT))  # the last pipeline stage has its own copy of a tied embedding
        if not own:
            continue
        group = _tensor_group(entry)
        shard = _merge(entry, _parts(entry, tensors), shape, dist.get_rank(group), dist.get_world_size(group))
        for parameter in own:
            parameter.copy_(shard)
    if parameters:
        raise ConfigError(f"no Hugging Face tensor found for the model's parameters {sorted(parameters)}")


def _parts(entry: TensorEntry, tensors: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    parts = []
    for name, size in zip(entry.names, entry.shapes, strict=True):
        part = tensors[name]
        if tuple(part.shape) != size:
            raise ConfigError(
                f"tensor `{name}`: shape {list(part.shape)} does not match config.json, which needs {list(size)}."
            )
        parts.append(part)
    return parts


@torch.no_grad()
def named_tensors(model: Any, entries: Sequence[TensorEntry], shape: ModelShape) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the model's weights as Hugging Face tensors on every rank. All ranks must iterate together."""
    place = Placement(shape=shape)
    parameters = place.parameters(model)
    some = next(iter(parameters.values()))
    for entry in entries:
        own = parameters.get(entry.megatron)
        if own is None:
            whole = [torch.empty(size, dtype=some.dtype, device=some.device) for size in entry.shapes]
        else:
            whole = _whole(entry, own.detach(), shape)
        for name, tensor in zip(entry.names, whole, strict=True):
            expert_rank = place.expert_rank(entry)
            if expert_rank is not None:
                _spread(tensor, expert_rank, parallel_state.get_expert_model_parallel_group())
            _spread(tensor, place.stage(entry), parallel_state.get_pipeline_model_parallel_group())
            yield name, tensor


def _whole(entry: TensorEntry, own: torch.Tensor, shape: ModelShape) -> list[torch.Tensor]:
    """Return the Hugging Face tensors of a parameter, from the shards of all ranks."""
    group, shards = _tensor_group(entry), [own]
    if dist.get_world_size(group) > 1 and entry.kind is not TensorKind.WHOLE:
        shards = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
        dist.all_gather(shards, own.contiguous(), group=group)
    parts = _split(entry, shards, shape)
    return [part[: size[0]].contiguous() for part, size in zip(parts, entry.shapes, strict=True)]


def _spread(tensor: torch.Tensor, owner: int, group: dist.ProcessGroup) -> None:
    if dist.get_world_size(group) > 1:
        dist.broadcast(tensor, dist.get_global_rank(group, owner), group=group)


def _tensor_group(entry: TensorEntry) -> dist.ProcessGroup:
    of_expert = entry.expert is not None
    group: dist.ProcessGroup = (
        parallel_state.get_expert_tensor_parallel_group()
        if of_expert
        else parallel_state.get_tensor_model_parallel_group()
    )
    return group


def _merge(entry: TensorEntry, parts: Sequence[torch.Tensor], shape: ModelShape, rank: int, ranks: int) -> torch.Tensor:
    """Return this rank's shard of a Megatron parameter."""
    if entry.kind is TensorKind.WHOLE:
        return parts[0]
    if entry.kind is TensorKind.COLUMNS:
        return parts[0].chunk(ranks, 1)[rank]
    if entry.kind is TensorKind.BLOCKS:
        blocks = torch.cat(list(parts)).split_with_sizes(entry.blocks)
        return torch.cat([block.chunk(ranks)[rank] for block in blocks])
    if entry.kind is TensorKind.ROWS:
        missing = -len(parts[0]) % ranks
        whole = torch.cat([parts[0], parts[0].new_zeros(missing, *parts[0].shape[1:])]) if missing else parts[0]
        return whole.chunk(ranks)[rank]
    query, key, value = (part.view(shape.groups, -1, shape.head_dim, *part.shape[1:]) for part in parts)
    if shape.output_gate:  # the gate of each head follows its query; Megatron has all queries of a group first
        query = torch.cat([query[:, 0::2], query[:, 1::2]], 1)
    return torch.cat([query, key, value], 1).flatten(0, 2).chunk(ranks)[rank]


def _split(entry: TensorEntry, shards: Sequence[torch.Tensor], shape: ModelShape) -> list[torch.Tensor]:
    """Invert `_merge`, from the shards of all ranks."""
    if entry.kind is TensorKind.WHOLE:
        return [shards[0]]
    if entry.kind is TensorKind.COLUMNS:
        return [torch.cat(list(shards), 1)]
    if entry.kind is TensorKind.BLOCKS:
        cut = [shard.split_with_sizes([rows // len(shards) for rows in entry.blocks]) for shard in shards]
        whole = torch.cat([torch.cat([blocks[n] for blocks in cut]) for n in range(len(entry.blocks))])
        return list(whole.split_with_sizes([size[0] for size in entry.shapes]))
    whole = torch.cat(list(shards))
    if entry.kind is TensorKind.ROWS:
        return [whole]
    heads = shape.heads // shape.groups * (2 if shape.output_gate else 1)
    by_group = whole.view(shape.groups, heads + 2, shape.head_dim, *whole.shape[1:])
    query, key, value = by_group.split_with_sizes([heads, 1, 1], 1)
    if shape.output_gate:
        query = torch.stack(query.chunk(2, 1), 2).flatten(1, 2)
    return [part.flatten(0, 2) for part in (query, key, value)]
