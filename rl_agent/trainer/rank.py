"""One rank that has joined: its model, its optimizer and where training stands. Imports Megatron; `MegatronTrainer` does not."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist

from rl_agent.errors import WeightPushError
from rl_agent.trainer import checkpoint, cpu, layout
from rl_agent.trainer.base import StepResult
from rl_agent.trainer.hf_table import RandomTensors, check_names, table
from rl_agent.trainer.hf_weights import load_tensors, named_tensors
from rl_agent.trainer.legal import require_legal
from rl_agent.trainer.model import build_model
from rl_agent.trainer.optimizer import build_optimizer, update, wrap_model, zero_gradients
from rl_agent.trainer.plan import select_rollouts
from rl_agent.trainer.shape import read_shape
from rl_agent.trainer.step import Network, score_pass, targets, train_pass
from rl_agent.weights.safetensors_folder import TensorFolder, write_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rl_agent.algo.algorithm import Algorithm
    from rl_agent.algo.batch import Float32, Int32, TrainBatch
    from rl_agent.config.trainer import MegatronConfig
    from rl_agent.trainer.layout import RankLayout
    from rl_agent.weights.base import WeightSender, WeightUpdate


class Rank:
    """The state of a joined rank. All ranks call every method together."""

    def __init__(
        self,
        *,
        config: MegatronConfig,
        place: RankLayout,
        model_folder: Path,
        algorithm: Algorithm,
        seed: int,
        total_steps: int,
    ) -> None:
        cpu.patch_megatron()
        self._config = config
        self._algorithm = algorithm
        self._seed = seed
        self._total_steps = total_steps
        self._shape = read_shape(model_folder)
        require_legal(config, self._shape)
        self._device = layout.join(place, config, seed)
        self._table = table(self._shape, fused_norms=self._device.type == "cuda")
        model = build_model(self._shape, config, self._device)
        self._load_weights(model, model_folder)
        self._wrapped = wrap_model(model, config)
        self._optimizer = build_optimizer(self._wrapped, config)
        self._network = Network(
            wrapped=self._wrapped,
            vocab_size=self._shape.vocab,
            device=self._device,
            micro_batch_tokens=config.micro_batch_tokens,
            sequence_parallel=config.sequence_parallel,
        )
        self.steps = 0
        self.version = 0

    @property
    def is_first(self) -> bool:
        """Whether this rank speaks for all of them."""
        return dist.get_rank() == 0

    def score(self, sequences: Sequence[Int32]) -> list[Float32]:
        """See `Trainer.score`."""
        lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int32)
        if not lengths.sum():
            return [np.zeros(0, dtype=np.float32) for _ in sequences]
        starts = np.cumsum(lengths, dtype=np.int32) - lengths
        flat = score_pass(self._network, np.concatenate(sequences).astype(np.int32), starts, lengths)
        return [flat[start + 1 : start + size] for start, size in zip(starts, lengths, strict=True)]

    def step(self, batch: TrainBatch) -> StepResult:
        """See `Trainer.step`."""
        lr = self._algorithm.learning_rate(self.steps, self._total_steps)
        advantages = self._algorithm.advantages(batch)
        passes: list[Mapping[str, float]] = []
        norms: list[float] = []
        for part, own in self._parts(batch):
            weights = self._algorithm.weights(part)
            if not (weights * advantages[own]).any():
                continue
            zero_gradients(self._wrapped, self._optimizer)
            target = targets(part, advantages[own], weights, version=self.version, device=self._device)
            passes.append(train_pass(self._network, part, target, self._algorithm))
            result = update(self._optimizer, lr=lr, weight_decay=self._config.weight_decay)
            if not result.updated:
                break  # nothing changed, so another epoch would give the same gradient again
            norms.append(result.grad_norm)
        self.steps += bool(norms)
        return StepResult(metrics=_summary(passes, norms, lr), updated=bool(norms))

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights in Hugging Face names; all ranks iterate together."""
        return named_tensors(self._wrapped.module, self._table, self._shape)

    def send(self, sender: WeightSender, version: int) -> WeightUpdate:
        """Send from the first rank; every rank gets to know what was sent."""
        answer: list[WeightUpdate | None] = [None]
        if self.is_first:
            answer[0] = sender.send(self.named_tensors(), version)
        else:
            deque(self.named_tensors(), maxlen=0)
        dist.broadcast_object_list(answer, src=0)
        if answer[0] is None:
            raise WeightPushError(f"the first rank sent nothing for weights number {version}")
        return answer[0]

    def write(self, folder: Path) -> None:
        """Write the weights as safetensors."""
        if self.is_first:
            write_tensors(folder, self.named_tensors())
        else:
            deque(self.named_tensors(), maxlen=0)
        dist.barrier()

    def save(self, folder: Path) -> None:
        """See `Trainer.save`."""
        progress = checkpoint.Progress(steps=self.steps, version=self.version)
        checkpoint.save(folder, self._wrapped, self._optimizer, progress)

    def load(self, folder: Path) -> None:
        """See `Trainer.load`."""
        progress = checkpoint.load(folder, self._wrapped, self._optimizer)
        self.steps, self.version = progress.steps, progress.version

    def _load_weights(self, model: torch.nn.Module, folder: Path) -> None:
        stored = TensorFolder(folder)
        tensors: Mapping[str, torch.Tensor] = stored
        if stored.names:
            check_names(self._table, stored.names, str(folder))
        else:
            tensors = RandomTensors(self._table, std=self._shape.init_std, seed=self._seed)
        load_tensors(model, self._table, tensors, self._shape)

    def _parts(self, batch: TrainBatch) -> Iterator[tuple[TrainBatch, Int32]]:
        """The minibatches of all epochs, each with the places of its tokens in the whole batch."""
        for epoch in range(self._algorithm.epochs):
            if self._algorithm.minibatches == 1:
                yield batch, np.arange(len(batch.tokens), dtype=np.int32)
                continue
            order = np.random.default_rng([self._seed, self.steps, epoch]).permutation(len(batch.rewards))
            for rollouts in np.array_split(order, self._algorithm.minibatches):
                yield select_rollouts(batch, np.sort(rollouts).astype(np.int32))


def _summary(passes: Sequence[Mapping[str, float]], norms: Sequence[float], lr: float) -> dict[str, float]:
    """Means over the passes; the gap to the sampler only from the first one, before anything has moved."""
    metrics = {"train/lr": lr, "train/skipped": float(not norms)}
    if norms:
        metrics["train/grad_norm"] = float(np.mean(norms))
    for name in passes[0] if passes else ():
        values = [one[name] for one in passes if name in one]
        metrics[f"train/{name}"] = values[0] if name.startswith("logprob_diff") else float(np.mean(values))
    return metrics
