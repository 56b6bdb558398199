"""The Megatron-core trainer: the training step, over the networks of one rank.

Importing and constructing the trainer imports neither torch nor Megatron. `setup` installs the CPU patches, then
imports them. This turns the calling process permanently into a trainer process.
"""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from typing_extensions import override

from rl_agent.config.algo import Need
from rl_agent.config.trainer import TrainerConfig
from rl_agent.trainer.base import StepResult
from rl_agent.trainer.legal import require_legal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rl_agent.algo.algorithm import Algorithm
    from rl_agent.algo.batch import Float32, Int32, Prepared, TrainBatch
    from rl_agent.algo.scores import Scores
    from rl_agent.trainer.checkpoint_writer import Writing
    from rl_agent.trainer.networks import Networks
    from rl_agent.weights.base import WeightSender, WeightUpdate

ALGORITHM: Final = "algorithm.json"
"""File in a checkpoint with the algorithm's state."""


@dataclass(kw_only=True)
class MegatronConfig(TrainerConfig):
    """Megatron-core trainer on `data * tensor * pipeline * context` ranks."""

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1.0e-8
    weight_decay: float = 0.0
    """Weight decay of matrices. Norms and biases never decay."""
    grad_clip: float = 1.0
    """Maximum norm of the whole gradient; 0: no clipping."""
    threads: int = 0
    """CPU threads per rank; 0: PyTorch's default."""
    timeout_s: float = 600.0
    """Time that a rank waits for the others before it fails."""

    @override
    def build(self) -> MegatronTrainer:
        return MegatronTrainer(self)


class MegatronTrainer:
    """One rank of the trainer. See `Trainer` for the contract and `MegatronConfig` for the fields."""

    _algorithm: Algorithm
    _model_folder: Path
    _seed: int
    _total_steps: int
    _is_first: bool
    """True on rank 0, the only one that sends weights and copies files."""
    _kl_coefficient: float

    def __init__(self, config: MegatronConfig) -> None:
        self._config = config
        require_legal(self._config)
        self._networks: Networks | None = None
        self._writing: list[Writing] = []
        self.steps = 0
        """Number of batches that changed the weights."""
        self.version = 0
        """Version of the weights last pushed or loaded, with which the engine samples."""

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
        """Join the process group and build the model, with weights from `model_folder`, or from `seed` if it has none.

        `master_address` and `master_port`: where rank 0 meets the others. `close` undoes it.
        """
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")  # raised at every step
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Megatron warns that Transformer Engine and Apex are missing on a CPU
            from rl_agent.trainer import cpu  # noqa: PLC0415  heavy, and this order matters: patches, then Megatron

            cpu.install()
            from rl_agent.trainer import layout  # noqa: PLC0415
            from rl_agent.trainer.networks import Networks  # noqa: PLC0415

            place = layout.RankLayout(
                rank=rank,
                world_size=world_size,
                master_address=master_address,
                master_port=master_port,
                local_rank=local_rank,
            )
            try:
                self._networks = Networks(
                    self._config, place, model_folder=model_folder, algorithm=algorithm, seed=seed
                )
            except BaseException:
                layout.leave()  # the process group is global: left behind, it would make every later setup fail
                raise
        self._algorithm = algorithm
        self._model_folder = model_folder
        self._seed = seed
        self._total_steps = total_steps
        self._is_first = rank == 0
        self._kl_coefficient = algorithm.config.kl.coefficient
        self._writing = []
        self.steps = self.version = 0

    def close(self) -> None:
        """Leave the process group. The same process can then set up another trainer."""
        if self._networks is not None:
            self._networks = None
            from rl_agent.trainer import layout  # noqa: PLC0415  imports Megatron; it is loaded by now

            layout.leave()

    def logprobs(self, sequences: Sequence[Int32]) -> list[Float32]:
        """Return the log-probability of each next token: [T] int32 -> [T - 1] float32, no gradient."""
        lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int32)
        if not lengths.sum():
            return [np.zeros(0, dtype=np.float32) for _ in sequences]
        starts = np.cumsum(lengths, dtype=np.int32) - lengths
        tokens = np.concatenate(sequences).astype(np.int32)
        flat = self._joined().score(Need.OLD_LOGPROBS, tokens, starts, lengths)
        return [flat[start + 1 : start + size] for start, size in zip(starts, lengths, strict=True)]

    def score(self, batch: TrainBatch, needs: frozenset[Need]) -> Scores:
        """Return the batch's scores.

        Missing ones of `needs` are computed with the current weights: [T] float32 each.
        """
        starts, lengths = batch.segment_starts(), batch.segment_lengths
        found = {
            need.value: self._joined().score(need, batch.tokens, starts, lengths)
            for need in sorted(batch.scores.lacking(needs))
        }
        return replace(batch.scores, **found)

    def step(self, batch: TrainBatch) -> StepResult:
        """Train on one batch: `algo.epochs` passes, each with `algo.minibatches` optimizer steps."""
        algorithm, networks = self._algorithm, self._joined()
        lr = algorithm.learning_rate(self.steps, self._total_steps)
        shaped = algorithm.shaped(batch)
        metrics = dict(shaped.metrics)
        if not shaped.batch.loss_mask.any():
            return StepResult(metrics=metrics | _summary([], [], lr, 1), updated=False)
        scored = replace(shaped.batch, scores=self.score(shaped.batch, algorithm.config.needs))
        ready = algorithm.prepared(scored, self._kl_coefficient)
        metrics |= _score_metrics(ready)
        passes: list[Mapping[str, float]] = []
        norms: list[float] = []
        tried = 0
        for part, own in self._parts(ready.batch):
            tried += 1
            weights = algorithm.weights(part)
            metrics |= networks.train_critic(algorithm, ready, part, own, weights)
            if not (algorithm.config.trains_without_advantage or (weights * ready.advantages[own]).any()):
                continue
            told, result = networks.train_policy(algorithm, ready, part, own, weights, version=self.version, lr=lr)
            passes.append(told)
            if result.updated:  # otherwise only this minibatch has no signal
                norms.append(result.grad_norm)
        networks.return_memory()
        self.steps += bool(norms)
        if ready.kl is not None:
            self._kl_coefficient = algorithm.kl.next_coefficient(self._kl_coefficient, ready.kl, len(batch.rewards))
        return StepResult(metrics=_summary(passes, norms, lr, tried) | metrics, updated=bool(norms))

    def announce(self, sender: WeightSender, version: int) -> WeightUpdate | None:
        """Let `sender` announce the weights to the engine, on rank 0.

        Return None if the engine fetches the weights later.
        """
        return sender.announce(self._joined().tensor_infos(), version) if self._is_first else None

    def push(self, sender: WeightSender, version: int) -> WeightUpdate | None:
        """Send the current weights in Hugging Face names, from rank 0. Return None if `announce` has announced them."""
        networks, update = self._joined(), None
        if self._is_first:
            update = sender.send(networks.named_tensors(), version)
        else:
            networks.pass_tensors()
        self.version = version
        return update

    def begin_save(self, folder: Path) -> None:
        """Copy the state of a checkpoint (model, optimizer, random states), and write it while training continues."""
        if self._writing:
            raise RuntimeError(
                f"begin_save({folder}): the last checkpoint is still being written. Call finish_save first."
            )
        from rl_agent.trainer.checkpoint import StepCounters  # noqa: PLC0415  imports Megatron; it is loaded by now

        counters = StepCounters(steps=self.steps, version=self.version)
        state = json.dumps({"kl_coefficient": self._kl_coefficient}).encode()
        self._writing = self._joined().begin_save(folder, counters, {ALGORITHM: state})

    def finish_save(self, *, wait: bool = True) -> bool:
        """Finish what `begin_save` began. Return False if files are still being written. Raises InfraError."""
        if not wait and not self._joined().all_written(self._writing):
            return False
        writing, self._writing = self._writing, []
        for one in writing:
            one.finish()
        return True

    def save(self, folder: Path) -> None:
        """Write a checkpoint and wait for it. The caller makes it visible atomically."""
        self.begin_save(folder)
        self.finish_save()

    def renumber(self, version: int) -> None:
        """Set the version of the current weights when no push sets it."""
        self.version = version

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint."""
        counters = self._joined().load(folder)
        self.steps, self.version = counters.steps, counters.version
        state = folder / ALGORITHM
        if state.is_file():
            self._kl_coefficient = json.loads(state.read_text())["kl_coefficient"]

    def export(self, folder: Path) -> None:
        """Write the weights as a Hugging Face folder. All other files are copied from the model folder."""
        self._joined().write(folder)
        if not self._is_first:
            return
        for path in self._model_folder.iterdir():
            if path.is_file() and path.suffix not in (".safetensors", ".bin", ".pt") and ".index." not in path.name:
                shutil.copy2(path, folder / path.name)

    def _parts(self, batch: TrainBatch) -> Iterator[tuple[TrainBatch, Int32]]:
        """Yield the minibatches of all epochs, each with the positions of its tokens in the whole batch."""
        for epoch in range(self._algorithm.config.epochs):
            if self._algorithm.config.minibatches == 1:
                yield batch, np.arange(len(batch.tokens), dtype=np.int32)
                continue
            order = np.random.default_rng([self._seed, self.steps, epoch]).permutation(len(batch.rewards))
            for rollouts in np.array_split(order, self._algorithm.config.minibatches):
                yield batch.select(np.sort(rollouts).astype(np.int32))

    def _joined(self) -> Networks:
        if self._networks is None:
            raise RuntimeError("MegatronTrainer: not set up. Call setup first.")
        return self._networks


def _score_metrics(ready: Prepared) -> dict[str, float]:
    """Return the metrics of the scores before the first optimizer step."""
    found: dict[str, float] = {}
    if ready.kl is not None:
        found |= {"train/reference_kl": ready.kl, "train/kl_coefficient": ready.kl_coefficient}
    if ready.value_targets is not None and ready.batch.scores.values is not None:
        explained = _explained_variance(ready.batch.scores.values, ready.value_targets, ready.batch)
        found |= {} if explained is None else {"train/explained_variance": explained}
    return found


def _explained_variance(values: Float32, goals: Float32, batch: TrainBatch) -> float | None:
    """Return 1 - Var(target - value) / Var(target) over trained tokens, or None if the targets do not vary."""
    mask = batch.loss_mask
    spread = float(goals[mask].var(dtype="float64")) if mask.any() else 0.0
    return 1.0 - float((goals - values)[mask].var(dtype="float64")) / spread if spread > 0.0 else None


def _summary(passes: Sequence[Mapping[str, float]], norms: Sequence[float], lr: float, tried: int) -> dict[str, float]:
    """Return means over the passes.

    The gap to the sampler comes from the first pass alone, before the first optimizer step. `train/skipped`: the share
    of the `tried` minibatches that gave no optimizer step.
    """
    metrics = {"train/lr": lr, "train/skipped": 1 - len(norms) / tried}
    if norms:
        metrics["train/grad_norm"] = float(np.mean(norms))
    for name in passes[0] if passes else ():
        values = [one[name] for one in passes if name in one]
        metrics[f"train/{name}"] = values[0] if name.startswith("logprob_diff") else float(np.mean(values))
    return metrics
