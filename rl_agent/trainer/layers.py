"""Layers for machines without Transformer Engine: RMSNorm, and attention over packed sequences.

Megatron's local norm does not support sequence parallelism, and its local attention does not support packed sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.module import MegatronModule
from torch import nn
from torch.nn import functional
from typing_extensions import override

from rl_agent.trainer.bin_packing import alike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.trainer.shards import Shards


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Neighboring sequences of similar length that share one attention call."""

    start: int
    end: int
    """Range `[start, end)` of packed tokens."""
    sequences: int
    longest: int
    gather: torch.Tensor | None
    """[sequences * longest] int64: packed token (from `start`) at each padded position; None without padding."""
    scatter: torch.Tensor | None
    """[end - start] int64: padded position of each packed token."""


@dataclass
class PackedSequences(PackedSeqParams):  # type: ignore[misc]  # Megatron is untyped
    """Megatron's description of a packed batch, with the runs of `PackedAttention`."""

    runs: tuple[Run, ...] = field(default=())
    places: torch.Tensor | None = None
    """[h] int64: position of each token of this rank within its sequence; None if the rank holds all tokens."""
    order: torch.Tensor | None = None
    """[t] int64: position of each token in the concatenation of the ranks' parts; None if one rank holds all tokens."""
    lengths: tuple[int, ...] = ()


def packed_sequences(lengths: Sequence[int], device: torch.device, shards: Shards) -> PackedSequences:
    """Describe sequences of these lengths, longest first."""
    places = order = None
    if shards.context_ranks > 1:
        within = np.concatenate([np.arange(length) for length in lengths])
        places = torch.from_numpy(within[shards.held(lengths)]).to(device)
        order = torch.from_numpy(shards.order(lengths)).to(device)
    ends = torch.tensor([0, *lengths]).cumsum(0).to(device=device, dtype=torch.int32)
    return PackedSequences(
        qkv_format="thd",
        cu_seqlens_q=ends,
        cu_seqlens_kv=ends,
        max_seqlen_q=max(lengths),
        max_seqlen_kv=max(lengths),
        runs=tuple(_runs(lengths, device)),
        places=places,
        order=order,
        lengths=tuple(lengths),
    )


def _runs(lengths: Sequence[int], device: torch.device) -> list[Run]:
    runs, start = [], 0
    for own in alike(lengths):
        runs.append(_run(own, start, device))
        start += sum(own)
    return runs


def _run(lengths: Sequence[int], start: int, device: torch.device) -> Run:
    longest, gather, scatter = max(lengths), None, None
    if min(lengths) < longest:
        size = torch.tensor(lengths)
        place = torch.arange(longest)
        inside = place[None] < size[:, None]
        offset = size.cumsum(0) - size
        # padding repeats the last token of a sequence; it comes after all real tokens, so the causal mask hides it
        gather = (offset[:, None] + torch.minimum(place[None], size[:, None] - 1)).reshape(-1).to(device)
        scatter = inside.reshape(-1).nonzero()[:, 0].to(device)
    return Run(
        start=start,
        end=start + sum(lengths),
        sequences=len(lengths),
        longest=longest,
        gather=gather,
        scatter=scatter,
    )


class RMSNorm(nn.Module):
    """RMSNorm that marks its weight for sequence parallelism."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-6, **_unused: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]  # read by Megatron
        self.eps = eps
        self.offset = 1.0 if config.layernorm_zero_centered_gamma else 0.0

    @override
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalize over the last dimension."""
        weight = self.weight + self.offset if self.offset else self.weight
        return functional.rms_norm(hidden, self.weight.shape, weight, self.eps)


class PackedAttention(MegatronModule):  # type: ignore[misc]  # Megatron is untyped
    """Causal attention within each sequence of a packed batch."""

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        softmax_scale: float | None = None,
        **_unused: Any,
    ) -> None:
        super().__init__(config=config)
        self.scale = softmax_scale

    def sharded_state_dict(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        """Return nothing, since attention has no weights."""
        return {}

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any = None,
        *,
        packed_seq_params: PackedSequences,
        **_unused: Any,
    ) -> torch.Tensor:
        """Attend within each sequence: [h, heads, d], [h, groups, d], [h, groups, d] -> [h, heads * d]."""
        # on CPUs, these copies are faster than the loop over heads in PyTorch's grouped path
        repeat = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        if packed_seq_params.places is not None:
            return self._attend_to_all(query, key, value, packed_seq_params, packed_seq_params.places)
        outputs = [self._attend(run, query, key, value) for run in packed_seq_params.runs]
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).flatten(1)

    def _attend(self, run: Run, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        query, key, value = (self._padded(run, tensor[run.start : run.end]) for tensor in (query, key, value))
        output = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=self.scale)
        flat = output.transpose(1, 2).flatten(0, 1)
        return flat if run.scatter is None else flat[run.scatter]

    def _padded(self, run: Run, tensor: torch.Tensor) -> torch.Tensor:
        """Pad the sequences of a run: [t, heads, d] -> [sequences, heads, longest, d]."""
        places = tensor if run.gather is None else tensor[run.gather]
        return places.view(run.sequences, run.longest, *places.shape[1:]).transpose(1, 2)

    def _attend_to_all(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        sequences: PackedSequences,
        places: torch.Tensor,
    ) -> torch.Tensor:
        """Attend from the queries of this rank to the keys and values of all context-parallel ranks."""
        group = parallel_state.get_context_parallel_group()
        key, value = (
            gather_from_sequence_parallel_region(tensor.contiguous(), group=group)[sequences.order]
            for tensor in (key, value)
        )
        outputs, start, first = [], 0, 0
        for length in sequences.lengths:
            end, last = start + length, first + length // dist.get_world_size(group)
            outputs.append(self._attend_from(query[first:last], key[start:end], value[start:end], places[first:last]))
            start, first = end, last
        return torch.cat(outputs).flatten(1)

    def _attend_from(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        """Attend from queries at `places` of a sequence of m tokens: [n, heads, d] -> [n, heads, d]."""
        seen = places[:, None] >= torch.arange(len(key), device=key.device)
        query, key, value = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))
        output = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=self.scale)
        return output[0].transpose(0, 1)
