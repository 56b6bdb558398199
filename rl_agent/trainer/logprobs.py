"""Log-probability and entropy of next tokens from logits that are sharded over the vocabulary."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override


def logprobs_and_entropy(
    logits: torch.Tensor, labels: torch.Tensor, *, vocab_size: int, group: dist.ProcessGroup
) -> tuple[torch.Tensor, torch.Tensor]:
    """[t, V / shards] logits, [t] int64 labels -> [t] float32 log-probabilities and entropies in nats.

    `vocab_size` is the model's own: columns beyond it are padding and have probability 0. Both results carry gradients.
    """
    return _LogprobEntropy.apply(logits, labels, vocab_size, group)  # type: ignore[no-any-return, no-untyped-call]


class _LogprobEntropy(torch.autograd.Function):
    """One softmax for both results; p are the shard's probabilities, z its logits minus their maximum.

    logprob = z[label] - log sum exp z        d logprob / d z = onehot - p
    entropy = log sum exp z - sum p z         d entropy / d z = -p (log p + entropy)
    """

    @override
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, group: dist.ProcessGroup
    ) -> tuple[torch.Tensor, torch.Tensor]:
        shards, width = dist.get_world_size(group), logits.shape[-1]
        first = dist.get_rank(group) * width
        z = logits.float()
        if vocab_size < width * shards:
            z = z[:, : max(0, min(width, vocab_size - first))]
        biggest = z.amax(-1)
        if shards > 1:
            dist.all_reduce(biggest, dist.ReduceOp.MAX, group=group)
        z = z - biggest[:, None]
        exponent = z.exp()
        here = (labels >= first) & (labels < first + z.shape[-1])
        local = (labels - first).clamp(0, z.shape[-1] - 1)
        chosen = z.gather(-1, local[:, None])[:, 0] * here
        sums = torch.stack([exponent.sum(-1), (exponent * z).sum(-1), chosen])
        if shards > 1:
            dist.all_reduce(sums, group=group)
        total, weighted, chosen = sums
        log_total = total.log()
        entropy = log_total - weighted / total
        ctx.save_for_backward(exponent / total[:, None], z - log_total[:, None], entropy, local, here)
        ctx.width, ctx.dtype = width, logits.dtype
        return chosen - log_total, entropy

    @override
    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        of_logprob, of_entropy = grads
        p, log_p, entropy, local, here = ctx.saved_tensors
        grad = p * (-of_logprob[:, None] - of_entropy[:, None] * (log_p + entropy[:, None]))
        grad.scatter_add_(-1, local[:, None], (of_logprob * here)[:, None])
        if grad.shape[-1] < ctx.width:
            grad = torch.nn.functional.pad(grad, (0, ctx.width - grad.shape[-1]))
        return grad.to(ctx.dtype), None, None, None
