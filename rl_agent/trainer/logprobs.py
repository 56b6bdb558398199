"""Log-probability and entropy of next tokens, from logits sharded over the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator


def logprobs_and_entropy(
    logits: torch.Tensor, labels: torch.Tensor, *, vocab_size: int, group: dist.ProcessGroup
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies in nats: [t, V / shards] logits, [t] int64 labels -> [t] float32 each.

    `vocab_size` is the model's own: columns beyond it are padding and have probability 0. Both results carry gradients.
    """
    return _LogprobEntropy.apply(logits, labels, vocab_size, group)  # type: ignore[no-any-return, no-untyped-call]


class _LogprobEntropy(torch.autograd.Function):
    """One softmax for both results. p: the shard's probabilities. z: its logits minus their maximum.

    logprob = z[label] - log sum exp z        d logprob / d z = onehot - p
    entropy = log sum exp z - sum p z         d entropy / d z = -p (log p + entropy)

    The backward pass keeps only the logits and recomputes everything else, a few rows at a time, which fit a CPU cache.
    """

    @override
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, group: dist.ProcessGroup
    ) -> tuple[torch.Tensor, torch.Tensor]:
        shards, width = dist.get_world_size(group), logits.shape[-1]
        first = dist.get_rank(group) * width
        own = logits
        if vocab_size < width * shards:
            own = own[:, : max(0, min(width, vocab_size - first))]
        biggest = own.amax(-1).float()
        if shards > 1:
            dist.all_reduce(biggest, dist.ReduceOp.MAX, group=group)
        here = (labels >= first) & (labels < first + own.shape[-1])
        local = (labels - first).clamp(0, own.shape[-1] - 1)
        sums = torch.empty(3, len(labels), dtype=torch.float32, device=logits.device)
        sums[2] = (own.gather(-1, local[:, None])[:, 0].float() - biggest) * here
        for rows in _row_blocks(own):
            z = own[rows].float() - biggest[rows, None]
            exponent = z.exp()
            sums[0, rows] = exponent.sum(-1)
            sums[1, rows] = exponent.mul_(z).sum(-1)
        if shards > 1:
            dist.all_reduce(sums, group=group)
        total, weighted, chosen = sums
        log_total = total.log()
        entropy = log_total - weighted / total
        ctx.save_for_backward(own, biggest, total, entropy, local, here)
        ctx.width = width
        ctx.set_materialize_grads(False)  # most losses use only one of the two results
        return chosen - log_total, entropy

    @override
    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor, None, None, None]:
        of_logprob, of_entropy = grads
        own, biggest, total, entropy, local, here = ctx.saved_tensors
        of_label = torch.zeros_like(total) if of_logprob is None else of_logprob
        grad = own.new_zeros(len(own), ctx.width)
        for rows in _row_blocks(own):
            z = own[rows].float() - biggest[rows, None]
            p = z.exp().div_(total[rows, None])
            if of_entropy is None:
                part = p.mul_(-of_label[rows, None])
            else:
                log_p = z.sub_(total[rows, None].log())
                pull = log_p.add_(entropy[rows, None]).mul_(of_entropy[rows, None]).add_(of_label[rows, None])
                part = p.mul_(pull).neg_()
            part.scatter_add_(-1, local[rows, None], (of_label * here)[rows, None])
            grad[rows, : own.shape[-1]] = part
        return grad, None, None, None


def _row_blocks(values: torch.Tensor) -> Iterator[slice]:
    """Return slices of rows whose float32 copy fits a CPU cache. They are larger on a GPU."""
    entries = 1 << (24 if values.is_cuda else 20)
    height = max(1, entries // max(1, values.shape[-1]))
    return (slice(start, start + height) for start in range(0, len(values), height))
