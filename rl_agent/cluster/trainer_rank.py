"""The actor that hosts one rank of the trainer."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import ray

from rl_agent.cluster.process import addressed, own_address, set_up
from rl_agent.errors import WeightPushError
from rl_agent.ports import hold_port, number
from rl_agent.weights.base import Probe, WeightSender

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.algo.batch import TrainBatch
    from rl_agent.config.schema import Config
    from rl_agent.run_folder import RunFolder
    from rl_agent.tokens.turn import Float32, Int32
    from rl_agent.trainer.base import StepResult, Trainer
    from rl_agent.weights.base import WeightUpdate


class TrainerRank:
    """Host of a `Trainer` and its `WeightSender`. `cluster.bring_up` wraps it as a Ray actor."""

    def __init__(self, config: Config, folder: RunFolder, rank: int, world_size: int) -> None:
        set_up(folder.log(f"trainer_{rank}"))
        self._config = config
        self._folder = folder
        self._rank = rank
        self._world_size = world_size
        self._held = ExitStack()
        self._address = own_address(config)
        self._trainer: Trainer = config.trainer.build()
        self._sender: WeightSender = addressed(config.weights, "host", self._address).build()

    def place(self) -> str:
        """Return the id of the node of this process. It also shows that the process is alive."""
        return str(ray.get_runtime_context().get_node_id())

    def meeting_point(self) -> tuple[str, int]:
        """Return address and port where the other ranks meet this one. The port stays reserved until `start`."""
        held = self._held.enter_context(hold_port(self._address))
        return self._address, number(held)

    def start(self, model_folder: Path, master_address: str, master_port: int, number_on_node: int) -> None:
        """Build the model. Its weights come from the folder if it has any."""
        cluster, workers = self._config.cluster, getattr(self._config.engine, "tensor_parallel", 1)
        self._sender.open(self._folder.root, receivers=workers * cluster.engine_replicas)
        with self._held:
            self._trainer.setup(
                model_folder=model_folder,
                algorithm=self._config.algo.build(),
                seed=self._config.seed,
                total_steps=self._config.job.steps,
                rank=self._rank,
                world_size=self._world_size,
                master_address=master_address,
                master_port=master_port,
                # with reserved GPUs, Ray shows a rank only its own
                local_rank=0 if cluster.trainer_gpus else number_on_node,
            )

    def logprobs(self, sequences: Sequence[Int32]) -> list[Float32] | None:
        """See `trainer.base.Trainer`. Only rank 0 returns the result."""
        found = self._trainer.logprobs(sequences)
        return found if self._rank == 0 else None

    def step(self, batch: TrainBatch) -> StepResult:
        """See `trainer.base.Trainer`."""
        return self._trainer.step(batch)

    def regroup(self, receivers: int) -> None:
        """See `weights.base.WeightSender`."""
        self._sender.regroup(receivers)

    def announce(self, version: int, probe_tokens: Int32) -> tuple[WeightUpdate | None, Probe]:
        """Announce the weights if the engine must know them in advance, and compute the probe that verifies them."""
        (logprobs,) = self._trainer.logprobs([probe_tokens])
        if not len(logprobs):
            raise WeightPushError("the probe has fewer than two tokens, so it verifies nothing")
        return self._trainer.announce(self._sender, version), Probe(tokens=probe_tokens, logprobs=logprobs)

    def push(self, version: int) -> WeightUpdate | None:
        """Send the weights."""
        return self._trainer.push(self._sender, version)

    def begin_save(self, folder: Path) -> None:
        """See `trainer.base.Trainer`."""
        self._trainer.begin_save(folder)

    def finish_save(self) -> bool:
        """See `trainer.base.Trainer`. This does not wait, so that other calls can run in between."""
        return self._trainer.finish_save(wait=False)

    def renumber(self, version: int) -> None:
        """See `trainer.base.Trainer`."""
        self._trainer.renumber(version)

    def load(self, folder: Path) -> None:
        """See `trainer.base.Trainer`."""
        self._trainer.load(folder)

    def export(self, folder: Path) -> None:
        """See `trainer.base.Trainer`."""
        self._trainer.export(folder)
