"""One rank that has joined: its model, its optimizer and where training stands. Imports Megatron; `MegatronTrainer` does not."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
import torch.distributed as dist

from rl_agent.config.algo import FROZEN, Need
from rl_agent.errors import ConfigError
from rl_agent.run_folder import write_atomic
from rl_agent.trainer import checkpoint, cpu, layout
from rl_agent.trainer.base import StepResult
from rl_agent.trainer.checkpoint_writer import disk_errors_named
from rl_agent.trainer.critic import Critic, explained_variance
from rl_agent.trainer.hf_table import NOT_TRAINED, RandomTensors, check_names, table
from rl_agent.trainer.hf_weights import load_tensors, named_tensors
from rl_agent.trainer.legal import require_legal
from rl_agent.trainer.model import build_model
from rl_agent.trainer.optimizer import build_optimizer, update, wrap_model, zero_gradients
from rl_agent.trainer.shape import read_shape
from rl_agent.trainer.step import Network, score_pass, train_pass
from rl_agent.trainer.targets import targets
from rl_agent.weights.buckets import TensorInfo
from rl_agent.weights.safetensors_folder import TensorFolder, write_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rl_agent.algo.algorithm import Algorithm
    from rl_agent.algo.batch import Float32, Int32, Prepared, TrainBatch
    from rl_agent.algo.scores import Scores
    from rl_agent.config.trainer import MegatronConfig
    from rl_agent.trainer.checkpoint_writer import Writing
    from rl_agent.trainer.layout import RankLayout
    from rl_agent.weights.base import WeightSender, WeightUpdate

CRITIC: Final = "critic"
"""Folder of the critic's checkpoint, within the policy's."""
ALGORITHM: Final = "algorithm.json"
"""What the algorithm carries from step to step."""


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
        self._model_folder = model_folder
        self._wrapped = wrap_model(self._loaded_model(model_folder), config)
        self._optimizer = build_optimizer(self._wrapped, config)
        self._network = self._network_of(self._wrapped)
        self._critic: Critic | None = None
        if algorithm.critic is not None:
            value_model = self._loaded_model(model_folder)
            self._critic = Critic(value_model, config, hidden=self._shape.hidden, device=self._device)
        self._scorers = self._scoring_networks(model_folder)
        self._kl_coefficient = algorithm.config.kl.coefficient
        self._writing: list[Writing] = []
        self.steps = 0
        self.version = 0

    @property
    def is_first(self) -> bool:
        """Whether this rank speaks for all of them."""
        return dist.get_rank() == 0

    def logprobs(self, sequences: Sequence[Int32]) -> list[Float32]:
        """See `Trainer.logprobs`."""
        lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int32)
        if not lengths.sum():
            return [np.zeros(0, dtype=np.float32) for _ in sequences]
        starts = np.cumsum(lengths, dtype=np.int32) - lengths
        flat = score_pass(self._network, np.concatenate(sequences).astype(np.int32), starts, lengths)
        return [flat[start + 1 : start + size] for start, size in zip(starts, lengths, strict=True)]

    def score(self, batch: TrainBatch, needs: frozenset[Need]) -> Scores:
        """See `Trainer.score`."""
        starts, lengths = batch.segment_starts(), batch.segment_lengths
        found: dict[str, Float32] = {}
        for need in sorted(batch.scores.lacking(needs)):
            if need not in self._scorers:
                raise ConfigError(f"the trainer was not set up to give {need}: no part of algo needs it")
            found[need.value] = score_pass(self._scorers[need], batch.tokens, starts, lengths)
        return replace(batch.scores, **found)

    def step(self, batch: TrainBatch) -> StepResult:
        """See `Trainer.step`."""
        algorithm = self._algorithm
        lr = algorithm.learning_rate(self.steps, self._total_steps)
        shaped = algorithm.shaped(batch)
        metrics = dict(shaped.metrics)
        if not shaped.batch.loss_mask.any():
            return StepResult(metrics=metrics | _summary([], [], lr, 1), updated=False)
        scored = replace(shaped.batch, scores=self.score(shaped.batch, algorithm.config.needs))
        ready = algorithm.prepared(scored, self._kl_coefficient)
        metrics |= self._before(ready)
        passes: list[Mapping[str, float]] = []
        norms: list[float] = []
        tried = 0
        for part, own in self._parts(ready.batch):
            tried += 1
            weights = algorithm.weights(part)
            metrics |= self._train_critic(ready, part, own, weights)
            if not (algorithm.config.trains_without_advantage or (weights * ready.advantages[own]).any()):
                continue
            zero_gradients(self._wrapped, self._optimizer)
            target = targets(ready, part, own, weights, version=self.version, device=self._device)
            passes.append(train_pass(self._network, part, target, algorithm))
            result = update(self._optimizer, lr=lr, weight_decay=self._config.weight_decay)
            if result.updated:  # else this minibatch alone has nothing to teach: the others, and the critic, go on
                norms.append(result.grad_norm)
        cpu.return_memory()
        self.steps += bool(norms)
        if ready.kl is not None:
            self._kl_coefficient = algorithm.kl.next_coefficient(self._kl_coefficient, ready.kl, len(batch.rewards))
        return StepResult(metrics=_summary(passes, norms, lr, tried) | metrics, updated=bool(norms))

    def _before(self, ready: Prepared) -> dict[str, float]:
        """What the scores say, before anything moves."""
        found: dict[str, float] = {}
        if ready.kl is not None:
            found |= {"train/reference_kl": ready.kl, "train/kl_coefficient": ready.kl_coefficient}
        if ready.value_targets is not None and ready.batch.scores.values is not None:
            explained = explained_variance(ready.batch.scores.values, ready.value_targets, ready.batch)
            found |= {} if explained is None else {"train/explained_variance": explained}
        return found

    def _train_critic(self, ready: Prepared, part: TrainBatch, own: Int32, weights: Float32) -> dict[str, float]:
        learns = self._algorithm.critic
        if self._critic is None or learns is None or ready.value_targets is None:
            return {}
        told = self._critic.train(part, ready.value_targets[own], weights, learns)
        return {f"train/{name}": value for name, value in told.items()}

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights in Hugging Face names; all ranks iterate together."""
        return named_tensors(self._wrapped.module, self._table, self._shape)

    def announce(self, sender: WeightSender, version: int) -> WeightUpdate | None:
        """See `Trainer.announce`."""
        if not self.is_first:
            return None
        dtype = next(self._wrapped.module.parameters()).dtype
        tensors = [
            TensorInfo(name=name, dtype=dtype, shape=size)
            for entry in self._table
            for name, size in zip(entry.names, entry.shapes, strict=True)
        ]
        return sender.announce(tensors, version)

    def send(self, sender: WeightSender, version: int) -> WeightUpdate | None:
        """Send from the first rank; what is sent passes through all of them."""
        if self.is_first:
            return sender.send(self.named_tensors(), version)
        deque(self.named_tensors(), maxlen=0)
        return None

    def write(self, folder: Path) -> None:
        """Write the weights as safetensors, and unchanged what the model's folder has beside the language model."""
        if self.is_first:
            stored = TensorFolder(self._model_folder)
            beside = ((name, stored[name]) for name in stored.names if name.startswith(NOT_TRAINED))
            write_tensors(folder, chain(self.named_tensors(), beside))
        else:
            deque(self.named_tensors(), maxlen=0)
        dist.barrier()

    def begin_save(self, folder: Path) -> None:
        """See `Trainer.begin_save`."""
        if self._writing:
            raise RuntimeError(f"a checkpoint was begun in {folder} before finish_save ended the one before")
        progress = checkpoint.Progress(steps=self.steps, version=self.version)
        with disk_errors_named(folder):
            writing = [checkpoint.begin(folder, self._wrapped, self._optimizer, progress)]
            if self._critic is not None:
                writing.append(self._critic.begin_save(folder / CRITIC, progress))
            if self.is_first:
                write_atomic(folder / ALGORITHM, json.dumps({"kl_coefficient": self._kl_coefficient}).encode())
        self._writing = writing

    def finish_save(self, *, wait: bool) -> bool:
        """See `Trainer.finish_save`."""
        if not wait:
            written = torch.tensor([all(one.written for one in self._writing)], dtype=torch.int32, device=self._device)
            dist.all_reduce(written, op=dist.ReduceOp.MIN)
            if not written.item():
                return False
        writing, self._writing = self._writing, []
        for one in writing:
            one.finish()
        return True

    def load(self, folder: Path) -> None:
        """See `Trainer.load`."""
        progress = checkpoint.load(folder, self._wrapped, self._optimizer)
        self.steps, self.version = progress.steps, progress.version
        if self._critic is not None:
            self._critic.load(folder / CRITIC)
        if (folder / ALGORITHM).is_file():
            self._kl_coefficient = json.loads((folder / ALGORITHM).read_text())["kl_coefficient"]

    def _loaded_model(self, folder: Path) -> torch.nn.Module:
        """A model of the policy's shape with the weights of a Hugging Face folder."""
        model: torch.nn.Module = build_model(self._shape, self._config, self._device)
        self._load_weights(model, folder)
        return model

    def _network_of(self, model: torch.nn.Module) -> Network:
        return Network(
            wrapped=model,
            vocab_size=self._shape.vocab,
            device=self._device,
            micro_batch_tokens=self._config.micro_batch_tokens,
            output_chunk_tokens=self._config.output_chunk_tokens,
            sequence_parallel=self._config.sequence_parallel,
        )

    def _scoring_networks(self, model_folder: Path) -> dict[Need, Network]:
        """Who gives which score. Frozen policies are loaded here, with neither gradients nor an optimizer."""
        found = {Need.OLD_LOGPROBS: self._network}
        if self._critic is not None:
            found[Need.VALUES] = self._critic.network
        for need in sorted(self._algorithm.config.needs & FROZEN):
            chosen = self._algorithm.config.frozen_folder(need)
            folder = Path(chosen) if chosen else model_folder
            if read_shape(folder) != self._shape:
                raise ConfigError(
                    f"{folder} (for {need}) has another shape than the policy in {model_folder}; both must be of one"
                )
            found[need] = self._network_of(self._loaded_model(folder).requires_grad_(requires_grad=False).eval())
        return found

    def _load_weights(self, model: torch.nn.Module, folder: Path) -> None:
        stored = TensorFolder(folder)
        tensors: Mapping[str, torch.Tensor] = stored
        if stored.names:
            check_names(self._table, stored.names, str(folder))
        else:
            tensors = RandomTensors(self._table, self._shape, seed=self._seed)
        load_tensors(model, self._table, tensors, self._shape)

    def _parts(self, batch: TrainBatch) -> Iterator[tuple[TrainBatch, Int32]]:
        """The minibatches of all epochs, each with the places of its tokens in the whole batch."""
        for epoch in range(self._algorithm.config.epochs):
            if self._algorithm.config.minibatches == 1:
                yield batch, np.arange(len(batch.tokens), dtype=np.int32)
                continue
            order = np.random.default_rng([self._seed, self.steps, epoch]).permutation(len(batch.rewards))
            for rollouts in np.array_split(order, self._algorithm.config.minibatches):
                yield batch.select(np.sort(rollouts).astype(np.int32))


def _summary(passes: Sequence[Mapping[str, float]], norms: Sequence[float], lr: float, tried: int) -> dict[str, float]:
    """Means over the passes; the gap to the sampler only from the first one, before anything has moved.

    `train/skipped`: the share of the `tried` minibatches that gave no optimizer step.
    """
    metrics = {"train/lr": lr, "train/skipped": 1 - len(norms) / tried}
    if norms:
        metrics["train/grad_norm"] = float(np.mean(norms))
    for name in passes[0] if passes else ():
        values = [one[name] for one in passes if name in one]
        metrics[f"train/{name}"] = values[0] if name.startswith("logprob_diff") else float(np.mean(values))
    return metrics
