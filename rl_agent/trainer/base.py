"""The contract of trainers: batches in, better weights out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rl_agent.algo.algorithm import Algorithm
    from rl_agent.algo.batch import TrainBatch
    from rl_agent.algo.scores import Scores
    from rl_agent.config.algo import Need
    from rl_agent.tokens.turn import Float32, Int32
    from rl_agent.weights.base import WeightSender, WeightUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one training step (one batch, perhaps several optimizer steps) did."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    """Names under `train/`: loss, grad_norm, entropy, logprob_diff_mean, logprob_diff_max, lr, clip_fraction, skipped."""
    updated: bool = True
    """False when the batch had no signal (no trained token, all advantages zero, non-finite gradient): nothing changed."""


class Trainer(Protocol):
    """One rank of the trainer. Built by `TrainerConfig.build`. All ranks call every method together."""

    def setup(
        self,
        *,
        model_folder: Path,
        algorithm: Algorithm,
        seed: int,
        total_steps: int,
        rank: int = 0,
        world_size: int = 1,
        master_address: str = "127.0.0.1",
        master_port: int = 0,
        local_rank: int = 0,
    ) -> None:
        """Join the process group, build the model from a Hugging Face folder and load its weights if it has any.

        Rank 0 meets the others at `master_address:master_port`.
        """

    def logprobs(self, sequences: Sequence[Int32]) -> list[Float32]:
        """Log-probability of each next token: [T] int32 -> [T - 1] float32, no gradient."""

    def score(self, batch: TrainBatch, needs: frozenset[Need]) -> Scores:
        """What the batch has, and what it lacks of `needs`, by the weights of now. Raises ConfigError for what nobody gives."""

    def step(self, batch: TrainBatch) -> StepResult:
        """Shape, score and train on one batch. Scores that it brings along are not made again."""

    def announce(self, sender: WeightSender, version: int) -> WeightUpdate | None:
        """Let `sender` tell the engine what is coming; None where it fetches what was sent."""

    def push(self, sender: WeightSender, version: int) -> WeightUpdate | None:
        """Hand the current weights, in Hugging Face names, to `sender`; None where it has announced them."""

    def begin_save(self, folder: Path) -> None:
        """Copy what a checkpoint holds (model, optimizer, schedule, random states) and write it while training goes on.

        At most one is on its way at a time.
        """

    def finish_save(self, *, wait: bool = True) -> bool:
        """End what `begin_save` began; False if files are still being written and `wait` is false.

        The caller then makes the checkpoint visible. Raises InfraError if a file could not be written.
        """

    def renumber(self, version: int) -> None:
        """Say which number the current weights have, where nobody samples with them and `push` does not say it."""

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint."""

    def export(self, folder: Path) -> None:
        """Write the weights as a Hugging Face folder (config and tokenizer are copied from `model_folder`)."""
