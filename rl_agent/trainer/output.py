"""The output layer, applied to chunks of predictions, so that the logits of a long sequence never all exist at once.

A vocabulary of 150,000 and 32,000 predictions make 19 GB of float32 logits, and the loss holds two arrays of that size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from rl_agent.trainer.logprobs import logprobs_and_entropy

if TYPE_CHECKING:
    from collections.abc import Sequence


def give_hidden_states(model: Any) -> None:
    """Make the last stage return the input of its output layer.

    The layer keeps its weight and position in the model.
    """
    if model.post_process:
        model.output_layer.forward = lambda hidden, **_unused: (hidden, None)


def predictions(
    model: Any,
    hidden: torch.Tensor,
    labels: torch.Tensor,
    *,
    vocab_size: int,
    chunk: int,
    sequence_parallel: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies in nats: [t, H] hidden states, [t] int64 labels -> [t] float32 each.

    `chunk`: number of predictions whose logits exist at a time. If there are more, the backward pass recomputes them.
    With `sequence_parallel`, each tensor-parallel rank has a part of the hidden states.
    """
    tied = model.share_embeddings_and_output_weights
    weight = model.shared_embedding_or_output_weight() if tied else model.output_layer.weight
    hidden = (
        gather_from_sequence_parallel_region(hidden)
        if sequence_parallel
        else copy_to_tensor_model_parallel_region(hidden)
    )

    def part(some_hidden: torch.Tensor, some_labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = functional.linear(some_hidden, weight)
        group = parallel_state.get_tensor_model_parallel_group()
        return logprobs_and_entropy(logits, some_labels, vocab_size=vocab_size, group=group)

    if len(labels) <= chunk:
        return part(hidden, labels)
    parts: Sequence[tuple[torch.Tensor, torch.Tensor]] = [
        checkpoint(part, hidden[start : start + chunk], labels[start : start + chunk], use_reentrant=False)
        for start in range(0, len(labels), chunk)
    ]
    return torch.cat([logprobs for logprobs, _ in parts]), torch.cat([entropy for _, entropy in parts])
