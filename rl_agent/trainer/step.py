"""One pass over a batch through Megatron's schedule: forward, loss, backward, and the sums behind the metrics."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func

from rl_agent.algo.metrics import means, token_sums
from rl_agent.trainer import layout
from rl_agent.trainer.bin_packing import pack
from rl_agent.trainer.layout import max_over_copies, sum_over_copies
from rl_agent.trainer.output import predictions
from rl_agent.trainer.packing import micro_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rl_agent.algo.algorithm import Algorithm
    from rl_agent.algo.batch import Float32, Int32, TrainBatch
    from rl_agent.trainer.packing import MicroBatch
    from rl_agent.trainer.targets import Targets


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinedModel:
    """A model that runs through Megatron's pipeline schedule, with the settings of its passes."""

    wrapped: Any
    """The model with its gradient buffers."""
    vocab_size: int
    device: torch.device
    micro_batch_tokens: int
    output_chunk_tokens: int
    sequence_parallel: bool

    def micro_batches(self, tokens: Int32, starts: Int32, lengths: Int32) -> list[MicroBatch]:
        """Pack this copy's share of the segments."""
        copies = parallel_state.get_data_parallel_world_size()
        bins = pack(lengths, budget=self.micro_batch_tokens, copies=copies)
        own = bins[parallel_state.get_data_parallel_rank() :: copies]
        shards = layout.shards(sequence_parallel=self.sequence_parallel)
        return [micro_batch(tokens, starts, lengths, segments, self.device, shards) for segments in own]

    def run(
        self,
        micro_batches: list[MicroBatch],
        visit: Callable[[MicroBatch, torch.Tensor, torch.Tensor], torch.Tensor],
        *,
        forward_only: bool,
    ) -> None:
        """Run micro-batches through the model.

        `visit(micro, logprobs, entropy)` is called with each and returns its loss.
        """

        def forward(data: Iterator[MicroBatch], model: Any) -> tuple[torch.Tensor, Callable[..., Any]]:
            micro = next(data)
            output = model(micro.inputs, micro.positions, None, packed_seq_params=micro.sequences)

            def loss(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
                logprobs, entropy = self.predictions(output[0], micro)
                if (order := micro.sequences.order) is not None:
                    logprobs, entropy = (layout.gather_predictions(part, order) for part in (logprobs, entropy))
                # token weights are normalized over the whole batch, so Megatron must not divide by anything
                return visit(micro, logprobs, entropy), torch.tensor(1, dtype=torch.int), {}

            return output, loss

        get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=iter(micro_batches),
            model=[self.wrapped],
            num_microbatches=len(micro_batches),
            seq_length=max(micro.inputs.shape[1] for micro in micro_batches),
            micro_batch_size=1,
            forward_only=forward_only,
        )

    def predictions(self, output: torch.Tensor, micro: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities of the labels and entropies in nats: [t, H] hidden states -> [t] float32 each."""
        return predictions(
            getattr(self.wrapped, "module", self.wrapped),
            output,
            micro.labels,
            vocab_size=self.vocab_size,
            chunk=self.output_chunk_tokens,
            sequence_parallel=self.sequence_parallel,
        )


def train_pass(
    network: PipelinedModel, batch: TrainBatch, target: Targets, algorithm: Algorithm
) -> Mapping[str, float]:
    """Accumulate the gradient of the whole batch, and return its metrics, equal on every rank.

    The loss is `sum(weight * token_loss)` over all ranks; every metric is a mean over trained tokens of all ranks.
    """
    sums: dict[str, torch.Tensor] = defaultdict(lambda: torch.zeros((), dtype=torch.float64, device=network.device))
    largest = torch.zeros((), dtype=torch.float64, device=network.device)

    def visit(micro: MicroBatch, logprobs: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
        at = micro.index
        inputs = target.loss_input(at, logprobs, micro.segment)
        terms = algorithm.token_loss(inputs)
        loss = (target.weights[at] * terms.loss).sum()
        with torch.no_grad():
            sums["loss"] += loss.detach()
            for name, value in token_sums(inputs, terms, entropy).items():
                sums[name] += value
            # tokens sampled with the trainer's current weights
            on_policy = inputs.loss_mask & (target.staleness[at] == 0)
            difference = (logprobs - target.rollout_logprobs[at]).abs() * on_policy
            sums["on_policy"] += on_policy.sum()
            sums["logprob_diff_mean"] += difference.double().sum()
            largest.copy_(torch.maximum(largest, difference.max().double()))
        return loss

    micro_batches = network.micro_batches(batch.tokens, batch.segment_starts(), batch.segment_lengths)
    network.run(micro_batches, visit, forward_only=False)
    if not layout.is_last_stage():
        return layout.metrics_from_last_stage({})
    names = list(sums)
    total = dict(zip(names, sum_over_copies(torch.stack([sums[n] for n in names])).tolist(), strict=True))
    return layout.metrics_from_last_stage(_means(total, float(max_over_copies(largest[None])[0])))


def _means(total: dict[str, float], largest: float) -> dict[str, float]:
    """Turn sums into means. A mean over no token is left out: missing is not zero."""
    on_policy, difference = total["on_policy"], total["logprob_diff_mean"]
    metrics = {"loss": total["loss"], **means(total)}
    if on_policy:
        metrics |= {"logprob_diff_mean": difference / on_policy, "logprob_diff_max": largest}
    return metrics


def score_pass(network: PipelinedModel, tokens: Int32, starts: Int32, lengths: Int32) -> Float32:
    """Return the log-probability of each token in its segment: [T] float32, 0 for first tokens."""
    scores = torch.zeros(len(tokens), dtype=torch.float32, device=network.device)

    def visit(micro: MicroBatch, logprobs: torch.Tensor, _entropy: torch.Tensor) -> torch.Tensor:
        real = micro.index > 0  # the placeholder of an empty micro-batch points to token 0, which has no prediction
        scores[micro.index[real]] = logprobs[real]
        return logprobs.sum()

    with torch.no_grad():
        network.run(network.micro_batches(tokens, starts, lengths), visit, forward_only=True)
    result: Float32 = layout.from_last_stage(sum_over_copies(scores)).cpu().numpy()
    return result
