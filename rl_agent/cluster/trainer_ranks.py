"""All ranks of the trainer, called together."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from rl_agent.cluster.calls import LostActorError, share

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from rl_agent.algo.batch import TrainBatch
    from rl_agent.cluster.calls import Process
    from rl_agent.cluster.situation import Situation
    from rl_agent.tokens.turn import Float32, Int32
    from rl_agent.trainer.base import StepResult
    from rl_agent.weights.base import Probe, WeightUpdate

SAVE_POLL_S: Final = 0.2
"""Between questions to the ranks whether their files are written."""
PULSE_S: Final = 5.0
"""Between two looks at whether every rank is still there."""


class Trainers:
    """All ranks of the trainer, called together; rank 0 answers."""

    def __init__(
        self,
        ranks: Sequence[Process],
        before_step: Callable[[], Awaitable[None]] | None = None,
        share: Callable[[Any], Any] = share,
    ) -> None:
        """`before_step`: what has to give way before a training step (an engine on the same GPU). `share`: see `calls.share`."""
        self._ranks = ranks
        self._share = share
        self._before_step = before_step
        self.turn = asyncio.Lock()
        """A step holds it, and so does whoever needs the weights to stay as they are over several calls."""
        self.ahead = False
        """Whether the weights are newer than what was last announced."""
        self.lost = False
        """Whether a rank is gone."""

    async def _all(self, method: str, *arguments: Any) -> Any:
        try:
            return (await asyncio.gather(*(rank.call(method, *arguments) for rank in self._ranks)))[0]
        except LostActorError as error:
            self.lost = True
            raise LostActorError(
                f"{error} A trainer without one of its ranks cannot go on. Remedy: resume=<run folder>, from the last checkpoint."
            ) from error

    async def start(self, model_folder: Path) -> None:
        """Build the model on every rank."""
        places = await asyncio.gather(*(rank.call("place") for rank in self._ranks))
        address, port = await self._ranks[0].call("meeting_point")
        seen: Counter[str] = Counter()
        starts = []
        for rank, node in zip(self._ranks, places, strict=True):
            starts.append(rank.call("start", model_folder, address, port, seen[node]))
            seen[node] += 1
        await asyncio.gather(*starts)

    async def watch(self, situation: Situation) -> None:
        """End the run when a rank is gone, even while nothing is asked of it."""
        while True:
            try:
                await self._all("place")
            except LostActorError as error:
                situation.end(error)
                return
            await asyncio.sleep(PULSE_S)

    async def logprobs(self, sequences: Sequence[Int32]) -> list[Float32]:
        """Log-probability of each next token."""
        found: list[Float32] = await self._all("logprobs", self._share(sequences))
        return found

    async def step(self, batch: TrainBatch) -> StepResult:
        """Train on one batch."""
        async with self.turn:
            if self._before_step is not None:
                await self._before_step()
            self.ahead = True
            done: StepResult = await self._all("step", self._share(batch))
            return done

    async def regroup(self, receivers: int) -> None:
        """See `weights.base.WeightSender.regroup`."""
        await self._all("regroup", receivers)

    async def announce(self, version: int, probe_tokens: Int32) -> tuple[WeightUpdate | None, Probe]:
        """What the engine has to know before the weights are sent, if anything, and the probe by which it is checked."""
        announced: tuple[WeightUpdate | None, Probe] = await self._all("announce", version, probe_tokens)
        self.ahead = False
        return announced

    async def push(self, version: int) -> WeightUpdate | None:
        """Send the weights; what the engine has to know to fetch them, if it has to."""
        sent: WeightUpdate | None = await self._all("push", version)
        return sent

    async def begin_save(self, folder: Path) -> None:
        """Copy what a checkpoint holds; it is written while other calls go on."""
        await self._all("begin_save", folder)

    async def finish_save(self) -> None:
        """Wait until every rank has written its part of the checkpoint. Raises InfraError if one could not."""
        written = await self._all("finish_save")
        while not written:
            await asyncio.sleep(SAVE_POLL_S)
            written = await self._all("finish_save")

    async def renumber(self, version: int) -> None:
        """Say which number the current weights have, where nobody samples with them."""
        await self._all("renumber", version)

    async def load(self, folder: Path) -> None:
        """Continue from a checkpoint."""
        await self._all("load", folder)

    async def export(self, folder: Path) -> None:
        """Write a Hugging Face folder."""
        await self._all("export", folder)
