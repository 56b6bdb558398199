"""All ranks of the trainer, called together."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Concatenate, Final

from rl_agent.cluster.calls import LostActorError, P, R, remote, share
from rl_agent.cluster.trainer_rank import TrainerRank

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from rl_agent.algo.batch import TrainBatch
    from rl_agent.cluster.calls import RemoteProcess
    from rl_agent.cluster.run_state import RunState
    from rl_agent.tokens.turn import Float32, Int32
    from rl_agent.trainer.base import StepResult
    from rl_agent.weights.base import Probe, WeightUpdate

SAVE_POLL_S: Final = 0.2
"""Interval between polls of whether the ranks have written their files."""
PULSE_S: Final = 5.0
"""Interval between liveness checks of the ranks."""


class Trainers:
    """All ranks of the trainer. Every call goes to all of them and returns the result of rank 0."""

    def __init__(
        self,
        ranks: Sequence[RemoteProcess],
        before_step: Callable[[], Awaitable[None]] | None = None,
        share: Callable[[Any], Any] = share,
    ) -> None:
        """`before_step` runs before each training step, for example to put an engine on the same GPU to sleep.

        `share`: see `calls.share`.
        """
        self._ranks = ranks
        self._share = share
        self._before_step = before_step
        self.turn = asyncio.Lock()
        """Held by a step, and by every sequence of calls during which the weights must not change."""
        self.ahead = False
        """True if the weights are newer than the last announced ones."""
        self.lost = False
        """True once a rank is lost."""

    async def _all(self, method: Callable[Concatenate[TrainerRank, P], R], *arguments: P.args, **named: P.kwargs) -> R:
        """Call a method on all ranks, and return the result of rank 0."""
        try:
            found = await asyncio.gather(*(remote(rank, method)(*arguments, **named) for rank in self._ranks))
        except LostActorError as error:
            self.lost = True
            raise LostActorError(
                f"{error} Training cannot continue without it. Resume from the last checkpoint with resume=<run folder>."
            ) from error
        return found[0]

    async def start(self, model_folder: Path) -> None:
        """Build the model on every rank."""
        places = await asyncio.gather(*(remote(rank, TrainerRank.place)() for rank in self._ranks))
        address, port = await remote(self._ranks[0], TrainerRank.meeting_point)()
        seen: Counter[str] = Counter()
        starts = []
        for rank, node in zip(self._ranks, places, strict=True):
            starts.append(remote(rank, TrainerRank.start)(model_folder, address, port, seen[node]))
            seen[node] += 1
        await asyncio.gather(*starts)

    async def watch(self, run_state: RunState) -> None:
        """End the run when a rank is lost, even while no call is running."""
        while True:
            try:
                await self._all(TrainerRank.place)
            except LostActorError as error:
                run_state.end(error)
                return
            await asyncio.sleep(PULSE_S)

    async def logprobs(self, sequences: Sequence[Int32]) -> list[Float32]:
        """Return the log-probability of each next token."""
        found = await self._all(TrainerRank.logprobs, self._share(sequences))
        assert found is not None, "rank 0 answers"
        return found

    async def step(self, batch: TrainBatch) -> StepResult:
        """Train on one batch."""
        async with self.turn:
            if self._before_step is not None:
                await self._before_step()
            self.ahead = True
            return await self._all(TrainerRank.step, self._share(batch))

    async def regroup(self, receivers: int) -> None:
        """See `weights.base.WeightSender.regroup`."""
        await self._all(TrainerRank.regroup, receivers)

    async def announce(self, version: int, probe_tokens: Int32) -> tuple[WeightUpdate | None, Probe]:
        """Return the announcement of the weights, if the engine needs one, and the probe that verifies them."""
        announced = await self._all(TrainerRank.announce, version, probe_tokens)
        self.ahead = False
        return announced

    async def push(self, version: int) -> WeightUpdate | None:
        """Send the weights. Return what the engine must know to fetch them, if it fetches them."""
        return await self._all(TrainerRank.push, version)

    async def begin_save(self, folder: Path) -> None:
        """Copy the state of a checkpoint. It is written while other calls run."""
        await self._all(TrainerRank.begin_save, folder)

    async def finish_save(self) -> None:
        """Wait until every rank has written its part of the checkpoint. Raises InfraError if one could not."""
        while not await self._all(TrainerRank.finish_save):  # noqa: ASYNC110 (the ranks are other processes)
            await asyncio.sleep(SAVE_POLL_S)

    async def renumber(self, version: int) -> None:
        """Set the version of the current weights when no push sets it."""
        await self._all(TrainerRank.renumber, version)

    async def load(self, folder: Path) -> None:
        """Continue from a checkpoint."""
        await self._all(TrainerRank.load, folder)

    async def export(self, folder: Path) -> None:
        """Write the weights as a Hugging Face folder."""
        await self._all(TrainerRank.export, folder)
