"""The networks of one trainer rank: the policy with its optimizer, the critic, and the frozen policies.

Imports Megatron.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
import torch.distributed as dist

from rl_agent.config.algo import FROZEN, Need
from rl_agent.errors import ConfigError
from rl_agent.run_folder import write_atomic
from rl_agent.trainer import checkpoint, cpu, layout
from rl_agent.trainer.checkpoint_writer import disk_errors_named
from rl_agent.trainer.critic import Critic
from rl_agent.trainer.hf_table import NOT_TRAINED, RandomTensors, check_names, table
from rl_agent.trainer.hf_weights import load_tensors, named_tensors
from rl_agent.trainer.legal import require_legal
from rl_agent.trainer.model import build_model
from rl_agent.trainer.optimizer import build_optimizer, update, wrap_model, zero_gradients
from rl_agent.trainer.shape import read_shape
from rl_agent.trainer.step import PipelinedModel, score_pass, train_pass
from rl_agent.trainer.targets import targets
from rl_agent.weights.buckets import TensorInfo
from rl_agent.weights.safetensors_folder import TensorFolder, write_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rl_agent.algo.algorithm import Algorithm
    from rl_agent.algo.batch import Float32, Int32, Prepared, TrainBatch
    from rl_agent.trainer.checkpoint_writer import Writing
    from rl_agent.trainer.layout import RankLayout
    from rl_agent.trainer.megatron import MegatronConfig
    from rl_agent.trainer.optimizer import UpdateResult

CRITIC: Final = "critic"
"""Folder of the critic's checkpoint within the policy's."""


class Networks:
    """Networks of a rank on its device. All ranks call every method together."""

    def __init__(
        self, config: MegatronConfig, place: RankLayout, *, model_folder: Path, algorithm: Algorithm, seed: int
    ) -> None:
        """Join the process group and build the networks.

        The weights come from `model_folder`, or from `seed` if it has none.
        """
        cpu.patch_megatron()
        self._config = config
        self._shape = read_shape(model_folder)
        require_legal(config, self._shape)
        self._device = layout.join(place, config, seed)
        self._table = table(self._shape, fused_norms=self._device.type == "cuda")
        self._model_folder = model_folder
        self._seed = seed
        self._wrapped = wrap_model(self._loaded_model(model_folder), config)
        self._optimizer = build_optimizer(self._wrapped, config)
        self._policy = self._network_of(self._wrapped)
        self._critic: Critic | None = None
        if algorithm.critic is not None:
            value_model = self._loaded_model(model_folder)
            self._critic = Critic(value_model, config, hidden=self._shape.hidden, device=self._device)
        self._scorers = self._scoring_networks(algorithm, model_folder)

    def score(self, need: Need, tokens: Int32, starts: Int32, lengths: Int32) -> Float32:
        """Return a score of each token of the segments: [T] float32. Raises ConfigError if no network gives it."""
        if need not in self._scorers:
            raise ConfigError(f"{need}: the trainer has no network for this score, since no part of algo needs it.")
        return score_pass(self._scorers[need], tokens, starts, lengths)

    def train_policy(
        self,
        algorithm: Algorithm,
        ready: Prepared,
        part: TrainBatch,
        own: Int32,
        weights: Float32,
        *,
        version: int,
        lr: float,
    ) -> tuple[Mapping[str, float], UpdateResult]:
        """Train the policy on one minibatch.

        `own`: positions of its tokens in the whole batch. `weights`: [t] of each token.
        """
        zero_gradients(self._wrapped, self._optimizer)
        target = targets(ready, part, own, weights, version=version, device=self._device)
        metrics = train_pass(self._policy, part, target, algorithm)
        return metrics, update(self._optimizer, lr=lr, weight_decay=self._config.weight_decay)

    def train_critic(
        self, algorithm: Algorithm, ready: Prepared, part: TrainBatch, own: Int32, weights: Float32
    ) -> dict[str, float]:
        """Train the critic on one minibatch and return its metrics. Without a critic this does nothing."""
        if self._critic is None or algorithm.critic is None or ready.value_targets is None:
            return {}
        metrics = self._critic.train(part, ready.value_targets[own], weights, algorithm.critic)
        return {f"train/{name}": value for name, value in metrics.items()}

    def return_memory(self) -> None:
        """Return freed memory to the operating system."""
        cpu.return_memory()

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the policy's weights in Hugging Face names. All ranks must iterate together."""
        return named_tensors(self._wrapped.module, self._table, self._shape)

    def pass_tensors(self) -> None:
        """Take part in another rank's iteration over `named_tensors`."""
        deque(self.named_tensors(), maxlen=0)

    def tensor_infos(self) -> list[TensorInfo]:
        """Return name, type and shape of each of `named_tensors`."""
        dtype = next(self._wrapped.module.parameters()).dtype
        return [
            TensorInfo(name=name, dtype=dtype, shape=size)
            for entry in self._table
            for name, size in zip(entry.names, entry.shapes, strict=True)
        ]

    def write(self, folder: Path) -> None:
        """Write the weights as safetensors.

        Tensors outside the language model are copied unchanged from the model folder.
        """
        if dist.get_rank() == 0:
            stored = TensorFolder(self._model_folder)
            beside = ((name, stored[name]) for name in stored.names if name.startswith(NOT_TRAINED))
            write_tensors(folder, chain(self.named_tensors(), beside))
        else:
            self.pass_tensors()
        dist.barrier()

    def begin_save(self, folder: Path, counters: checkpoint.StepCounters, files: Mapping[str, bytes]) -> list[Writing]:
        """Copy weights and optimizers, and begin to write them.

        `files`: name -> content, written beside them by rank 0.
        """
        with disk_errors_named(folder):
            writing = [checkpoint.begin(folder, self._wrapped, self._optimizer, counters)]
            if self._critic is not None:
                writing.append(self._critic.begin_save(folder / CRITIC, counters))
            if dist.get_rank() == 0:
                for name, content in files.items():
                    write_atomic(folder / name, content)
        return writing

    def all_written(self, writing: list[Writing]) -> bool:
        """Return whether every rank has written its part of a checkpoint."""
        written = torch.tensor([all(one.written for one in writing)], dtype=torch.int32, device=self._device)
        dist.all_reduce(written, op=dist.ReduceOp.MIN)
        return bool(written.item())

    def load(self, folder: Path) -> checkpoint.StepCounters:
        """Read weights and optimizers from a checkpoint."""
        counters = checkpoint.load(folder, self._wrapped, self._optimizer)
        if self._critic is not None:
            self._critic.load(folder / CRITIC)
        return counters

    def _loaded_model(self, folder: Path) -> torch.nn.Module:
        """Build a model of the policy's shape with the weights of a Hugging Face folder."""
        model: torch.nn.Module = build_model(self._shape, self._config, self._device)
        self._load_weights(model, folder)
        return model

    def _network_of(self, model: torch.nn.Module) -> PipelinedModel:
        return PipelinedModel(
            wrapped=model,
            vocab_size=self._shape.vocab,
            device=self._device,
            micro_batch_tokens=self._config.micro_batch_tokens,
            output_chunk_tokens=self._config.output_chunk_tokens,
            sequence_parallel=self._config.sequence_parallel,
        )

    def _scoring_networks(self, algorithm: Algorithm, model_folder: Path) -> dict[Need, PipelinedModel]:
        """Return the model of each score.

        Frozen policies are loaded here, without gradients and without an optimizer.
        """
        found = {Need.OLD_LOGPROBS: self._policy}
        if self._critic is not None:
            found[Need.VALUES] = self._critic.network
        for need in sorted(algorithm.config.needs & FROZEN):
            chosen = algorithm.config.frozen_folder(need)
            folder = Path(chosen) if chosen else model_folder
            if read_shape(folder) != self._shape:
                raise ConfigError(
                    f"{folder} (for {need}): the architecture differs from that of the policy in {model_folder}. "
                    "Use a model of the same architecture."
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
