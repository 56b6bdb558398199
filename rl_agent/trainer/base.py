"""The contract of trainers, and of the policies that they train."""

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
    """Result of one training step: one batch, with one or more optimizer steps."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics under `train/`: loss, grad_norm, entropy, logprob_diff_mean, logprob_diff_max, lr, clip_fraction,
    skipped."""
    updated: bool = True
    """False if the batch had no signal (no trained token, all advantages zero, non-finite gradient), so that nothing
    changed."""


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
        """Join the process group, and build the model from a Hugging Face folder, with its weights if it has any.

        Rank 0 meets the others at `master_address:master_port`.
        """

    def logprobs(self, sequences: Sequence[Int32]) -> list[Float32]:
        """Return the log-probability of each next token: [T] int32 -> [T - 1] float32, no gradient."""

    def score(self, batch: TrainBatch, needs: frozenset[Need]) -> Scores:
        """Return the batch's scores, with the missing ones of `needs` computed with the current weights.

        Raises ConfigError if no network gives a score.
        """

    def step(self, batch: TrainBatch) -> StepResult:
        """Shape, score and train on one batch. Scores that the batch already has are kept."""

    def announce(self, sender: WeightSender, version: int) -> WeightUpdate | None:
        """Let `sender` announce the weights to the engine. Return None if the engine fetches the weights later."""

    def push(self, sender: WeightSender, version: int) -> WeightUpdate | None:
        """Send the current weights in Hugging Face names. Return None if `announce` has announced them."""

    def begin_save(self, folder: Path) -> None:
        """Copy the state of a checkpoint (model, optimizer, random states), and write it while training continues.

        At most one checkpoint is written at a time.
        """

    def finish_save(self, *, wait: bool = True) -> bool:
        """Finish what `begin_save` began. Return False if files are still being written and `wait` is false.

        The caller then makes the checkpoint visible. Raises InfraError if a file could not be written.
        """

    def renumber(self, version: int) -> None:
        """Set the version of the current weights when no push sets it."""

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint."""

    def export(self, folder: Path) -> None:
        """Write the weights as a Hugging Face folder (config and tokenizer are copied from `model_folder`)."""


class PolicyFolder(Protocol):
    """Provider of a policy's folder. Built by `ModelConfig.build`."""

    def folder(self, scratch: Path) -> Path:
        """Return the Hugging Face folder of the policy, created in `scratch` if needed. Raises ConfigError."""
