"""A trainer in a process of its own, for tests that need one beside an engine. Its functions are called over there."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from rl_agent.trainer.megatron import MegatronTrainer
    from rl_agent.weights.base import Probe, WeightSender, WeightUpdate

HERE: dict[str, Any] = {}
"""What this process holds between calls."""
PROBE = np.arange(20, 84, dtype=np.int32)


def start(folder: Path, sender: Any, run_folder: Path) -> None:
    """Set a trainer up on a model folder, with random weights if it has none."""
    from rl_agent.config.hints import precompose
    from rl_agent.config.load import load
    from rl_agent.config.options import register
    from rl_agent.trainer.megatron import MegatronConfig

    register()
    conf = Path(__file__).parents[2] / "conf"
    algorithm = load(precompose(conf, "config", ["algo=grpo", "algo.lr=1e-3"])).algo.build()
    trainer = MegatronConfig(threads=1).build()
    trainer.setup(model_folder=folder, algorithm=algorithm, seed=1, total_steps=100)
    built = sender.build()
    built.open(run_folder, receivers=1)
    HERE.update(trainer=trainer, sender=built)


def _held() -> tuple[MegatronTrainer, WeightSender]:
    return HERE["trainer"], HERE["sender"]


def step(seed: int) -> None:
    """Change the weights."""
    from rl_agent.algo.batch import TrainBatch

    random = np.random.default_rng(seed)
    mask = np.ones(40, dtype=bool)
    mask[[0, 20]] = False
    updated = _held()[0].step(
        TrainBatch(
            tokens=random.integers(0, 100, 40).astype(np.int32),
            loss_mask=mask,
            rollout_logprobs=np.where(mask, -5, 0).astype(np.float32),
            weight_versions=np.where(mask, 0, -1).astype(np.int32),
            segment_lengths=np.array([20, 20], dtype=np.int32),
            segment_rollout=np.array([0, 1], dtype=np.int32),
            rewards=np.array([1, 0], dtype=np.float32),
            rollout_group=np.array([0, 0], dtype=np.int32),
        )
    )
    assert updated.updated


def announce(version: int) -> tuple[WeightUpdate | None, Probe]:
    """As a trainer rank of a run does."""
    from rl_agent.weights.base import Probe

    trainer, sender = _held()
    (logprobs,) = trainer.logprobs([PROBE])
    return trainer.announce(sender, version), Probe(tokens=PROBE, logprobs=logprobs)


def logprobs(tokens: Any) -> Any:
    """[T] int32 -> [T - 1] float32, by the weights of now."""
    (found,) = _held()[0].logprobs([tokens])
    return found


def push(version: int) -> WeightUpdate | None:
    """As a trainer rank of a run does."""
    trainer, sender = _held()
    return trainer.push(sender, version)


def push_a_part(version: int, told: Path) -> None:
    """As `push`, but the tensors stop coming after a few: writes this process's number to `told`, and waits to be killed."""
    trainer, sender = _held()

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        for count, named in enumerate(trainer._joined().named_tensors()):
            if count == 5:
                told.with_suffix(".part").write_text(str(os.getpid()))
                told.with_suffix(".part").replace(told)
                threading.Event().wait()
            yield named

    sender.send(tensors(), version)


def export(folder: Path) -> None:
    """Write a Hugging Face folder."""
    _held()[0].export(folder)


def close() -> None:
    """Give everything back."""
    trainer, sender = _held()
    sender.close()
    trainer.close()
    HERE.clear()
