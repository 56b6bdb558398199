"""The critic: the policy's network with one value per token instead of logits, and its own optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from torch import nn
from typing_extensions import override

from rl_agent.algo.advantage.gae import value_loss
from rl_agent.trainer import checkpoint
from rl_agent.trainer.layout import metrics_from_last_stage, sum_over_copies
from rl_agent.trainer.optimizer import build_optimizer, update, wrap_model, zero_gradients
from rl_agent.trainer.step import PipelinedModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rl_agent.algo.base import WithCritic
    from rl_agent.algo.batch import Float32, TrainBatch
    from rl_agent.trainer.checkpoint_writer import Writing
    from rl_agent.trainer.megatron import MegatronConfig
    from rl_agent.trainer.packing import MicroBatch


class ValueHead(nn.Linear):
    """Hidden state -> value, called like Megatron's output layer.

    Its weights start at zero, so all initial values are 0. Each tensor-parallel rank has the whole head. With sequence
    parallelism, each rank sees part of the tokens, and Megatron sums the gradients of weights with the mark
    `sequence_parallel`.
    """

    def __init__(self, hidden: int, *, dtype: torch.dtype, device: torch.device, sequence_parallel: bool) -> None:
        super().__init__(hidden, 1, bias=False, dtype=dtype, device=device)
        nn.init.zeros_(self.weight)
        self.weight.sequence_parallel = sequence_parallel  # type: ignore[attr-defined]  # read by Megatron

    @override
    def forward(self, hidden: torch.Tensor, **_unused: Any) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        """Return the values: [t, 1, H] -> [t, 1, 1]. A tied embedding in `weight` is ignored."""
        return super().forward(hidden), None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinedCritic(PipelinedModel):
    """The critic in the pipeline schedule.

    `visit` gets values instead of log-probabilities, with the same alignment.
    """

    @override
    def predictions(self, output: torch.Tensor, micro: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the values in place of log-probabilities, and zeros for the entropy: [h, 1] -> [h] float32 each."""
        values = output[:, 0].float()
        if self.sequence_parallel:  # every rank then computes the loss of all tokens
            values = gather_from_sequence_parallel_region(values, tensor_parallel_output_grad=False)
        return values, torch.zeros_like(values)


class Critic:
    """Critic over a loaded `model` of the policy's shape, whose output layer is replaced."""

    def __init__(self, model: Any, config: MegatronConfig, *, hidden: int, device: torch.device) -> None:
        model.share_embeddings_and_output_weights = False  # the last stage has no tied embedding to synchronize
        if model.post_process:
            dtype = next(model.parameters()).dtype
            model.output_layer = ValueHead(
                hidden, dtype=dtype, device=device, sequence_parallel=config.sequence_parallel
            )
        self._wrapped = wrap_model(model, config)
        self._optimizer = build_optimizer(self._wrapped, config)
        self._weight_decay = config.weight_decay
        self.network = PipelinedCritic(
            wrapped=self._wrapped,
            vocab_size=1,
            device=device,
            micro_batch_tokens=config.micro_batch_tokens,
            output_chunk_tokens=config.output_chunk_tokens,
            sequence_parallel=config.sequence_parallel,
        )

    def train(
        self, batch: TrainBatch, value_targets: Float32, weights: Float32, part: WithCritic
    ) -> Mapping[str, float]:
        """Take one optimizer step towards `value_targets` ([T], of this batch).

        `weights`: those of the policy's loss.
        """
        device = self.network.device
        old = batch.scores.values
        assert old is not None
        arrays = [torch.from_numpy(values).to(device) for values in (old, value_targets, weights)]
        old_values, goal, weight = arrays
        total = torch.zeros((), dtype=torch.float64, device=device)

        def visit(micro: MicroBatch, values: torch.Tensor, _entropy: torch.Tensor) -> torch.Tensor:
            at = micro.index
            loss = (weight[at] * value_loss(values, old_values[at], goal[at], part.value_clip)).sum()
            total.add_(loss.detach())
            return loss

        zero_gradients(self._wrapped, self._optimizer)
        micro_batches = self.network.micro_batches(batch.tokens, batch.segment_starts(), batch.segment_lengths)
        self.network.run(micro_batches, visit, forward_only=False)
        result = update(self._optimizer, lr=part.critic_lr, weight_decay=self._weight_decay)
        told = {"critic_loss": float(sum_over_copies(total[None])[0]), "critic_grad_norm": result.grad_norm}
        return metrics_from_last_stage(told)  # only the last stage has losses

    def begin_save(self, folder: Path, counters: checkpoint.StepCounters) -> Writing:
        """Begin to write weights and optimizer in the background."""
        return checkpoint.begin(folder, self._wrapped, self._optimizer, counters)

    def load(self, folder: Path) -> None:
        """Read weights and optimizer from a checkpoint."""
        checkpoint.load(folder, self._wrapped, self._optimizer)
