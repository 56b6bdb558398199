"""The Megatron-core trainer: what the configuration builds and everybody else calls.

Building it imports neither torch nor Megatron; `setup` does, after the CPU adaptation is in. The process that calls `setup` is
from then on a trainer process.
"""

from __future__ import annotations

import shutil
import warnings
from typing import TYPE_CHECKING

from rl_agent.config.trainer import MegatronConfig, Precision
from rl_agent.trainer.legal import require_legal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.algo.algorithm import Algorithm
    from rl_agent.algo.batch import Float32, Int32, TrainBatch
    from rl_agent.algo.scores import Scores
    from rl_agent.config.algo import Need
    from rl_agent.trainer.base import StepResult
    from rl_agent.trainer.rank import Rank
    from rl_agent.weights.base import WeightSender, WeightUpdate


class MegatronTrainer:
    """One rank of the trainer; see `Trainer` for the contract and `MegatronConfig` for the fields."""

    def __init__(
        self,
        *,
        data_parallel: int,
        tensor_parallel: int,
        pipeline_parallel: int,
        context_parallel: int,
        expert_parallel: int,
        sequence_parallel: bool,
        distributed_optimizer: bool,
        optimizer_offload: float,
        precision: Precision,
        micro_batch_tokens: int,
        output_chunk_tokens: int,
        recompute: bool,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        grad_clip: float,
        threads: int,
        timeout_s: float,
    ) -> None:
        self._config = MegatronConfig(
            data_parallel=data_parallel,
            tensor_parallel=tensor_parallel,
            pipeline_parallel=pipeline_parallel,
            context_parallel=context_parallel,
            expert_parallel=expert_parallel,
            sequence_parallel=sequence_parallel,
            distributed_optimizer=distributed_optimizer,
            optimizer_offload=optimizer_offload,
            precision=precision,
            micro_batch_tokens=micro_batch_tokens,
            output_chunk_tokens=output_chunk_tokens,
            recompute=recompute,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            grad_clip=grad_clip,
            threads=threads,
            timeout_s=timeout_s,
        )
        require_legal(self._config)
        self._rank: Rank | None = None
        self._model_folder: Path | None = None

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
        """Join the process group and build the model; its weights come from `model_folder`, or from `seed` if it has none.

        `master_address` and `master_port`: where rank 0 meets the others. Undone by `close`.
        """
        # about functions that Megatron calls at every step
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Megatron's remarks on Transformer Engine and Apex, which a CPU cannot have
            from rl_agent.trainer import cpu  # noqa: PLC0415  heavy, and this order matters: patches, then Megatron

            cpu.install()
            from rl_agent.trainer import layout  # noqa: PLC0415
            from rl_agent.trainer.rank import Rank  # noqa: PLC0415

            place = layout.RankLayout(
                rank=rank,
                world_size=world_size,
                master_address=master_address,
                master_port=master_port,
                local_rank=local_rank,
            )
            try:
                self._rank = Rank(
                    config=self._config,
                    place=place,
                    model_folder=model_folder,
                    algorithm=algorithm,
                    seed=seed,
                    total_steps=total_steps,
                )
            except BaseException:
                layout.leave()  # the group is global: left behind, it would make every later set-up fail
                raise
        self._model_folder = model_folder

    def close(self) -> None:
        """Leave the process group; the same process can then set up another trainer."""
        if self._rank is not None:
            self._rank = None
            from rl_agent.trainer import layout  # noqa: PLC0415  imports Megatron; it is loaded by now

            layout.leave()

    @property
    def version(self) -> int:
        """Number of the weights that were last pushed (or loaded): what the engine samples with."""
        return self._joined().version

    @property
    def steps(self) -> int:
        """Batches so far that changed the weights."""
        return self._joined().steps

    def logprobs(self, sequences: Sequence[Int32]) -> list[Float32]:
        """Log-probability of each next token: [T] int32 -> [T - 1] float32, no gradient."""
        return self._joined().logprobs(sequences)

    def score(self, batch: TrainBatch, needs: frozenset[Need]) -> Scores:
        """What the batch lacks of `needs`: [T] float32 each, by the policy, the critic and the frozen policies of now."""
        return self._joined().score(batch, needs)

    def step(self, batch: TrainBatch) -> StepResult:
        """Train on one batch: `algo.epochs` passes, each with `algo.minibatches` optimizer steps."""
        return self._joined().step(batch)

    def announce(self, sender: WeightSender, version: int) -> WeightUpdate | None:
        """Let `sender` tell the engine what is coming; None where it fetches what was sent. Rank 0's answer counts."""
        return self._joined().announce(sender, version)

    def push(self, sender: WeightSender, version: int) -> WeightUpdate | None:
        """Hand the current weights, in Hugging Face names, to `sender`; None where it has announced them. Only rank 0 sends."""
        rank = self._joined()
        update = rank.send(sender, version)
        rank.version = version
        return update

    def begin_save(self, folder: Path) -> None:
        """Copy what a checkpoint holds (model, optimizer, schedule, random states) and write it while training goes on."""
        self._joined().begin_save(folder)

    def finish_save(self, *, wait: bool = True) -> bool:
        """End what `begin_save` began: False if files are still being written and `wait` is false. Raises InfraError."""
        return self._joined().finish_save(wait=wait)

    def save(self, folder: Path) -> None:
        """Write a checkpoint and wait for it. The caller makes it visible atomically."""
        self.begin_save(folder)
        self.finish_save()

    def renumber(self, version: int) -> None:
        """Say which number the current weights have, where nobody samples with them."""
        self._joined().version = version

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint."""
        self._joined().load(folder)

    def export(self, folder: Path) -> None:
        """Write the weights as a Hugging Face folder; everything but the weights is copied from the model's own."""
        rank = self._joined()
        rank.write(folder)
        if rank.is_first and self._model_folder is not None:
            for path in self._model_folder.iterdir():
                if path.is_file() and path.suffix not in (".safetensors", ".bin", ".pt") and ".index." not in path.name:
                    shutil.copy2(path, folder / path.name)

    def _joined(self) -> Rank:
        if self._rank is None:
            raise RuntimeError("MegatronTrainer.setup has not been called")
        return self._rank
