"""Trains the tiny model and saves after every step until it is killed: what `test_trainer_killed` starts as a process.

Importing Megatron takes seconds, so a parent does it once: for each run folder on its standard input it forks a child that trains
there, prints the child's number, and prints `ended` when it is gone. The parent itself never computes anything.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from trainer_cases import grpo, import_megatron, random_batch, trainer

from rl_agent.run_folder import RunFolder

NOTES = "notes"
"""What the children did, a line each: loaded, trained (with the loss) or finished (a checkpoint), and the step."""
BATCHES = 3
"""Different ones, each with something to learn."""


def train(root: Path) -> None:
    """From the last checkpoint on, without end."""
    folder = RunFolder(root)
    folder.remove_unfinished()
    found = folder.last_checkpoint()
    step = found.step if found else 0
    notes = os.open(root / NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(*words: object) -> None:
        os.write(notes, (" ".join(map(str, words)) + "\n").encode())

    with trainer(root / "model", grpo(), distributed_optimizer=True) as one:
        if found:
            one.load(found.folder)
        note("loaded", step)
        saving = 0
        while True:
            loss = one.step(random_batch(step % BATCHES)).metrics["train/loss"]
            step += 1
            note("trained", step, repr(loss))
            if saving:  # its files were written during the step
                one.finish_save()
                folder.finish_checkpoint(saving, {}, keep=2)
                note("finished", saving)
            one.begin_save(folder.begin_checkpoint(step))
            saving = step


def uninterrupted(root: Path, steps: int) -> list[float]:
    """The losses of a run that nobody kills."""
    with trainer(root / "model", grpo(), distributed_optimizer=True) as one:
        return [one.step(random_batch(step % BATCHES)).metrics["train/loss"] for step in range(steps)]


def _serve() -> None:
    import_megatron()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                train(Path(line.rstrip("\n")))
            except BaseException:  # noqa: BLE001  told, and never raised into what the parent was doing
                traceback.print_exc()
            os._exit(1)
        _say(str(child))
        os.waitpid(child, 0)
        _say("ended")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve()
