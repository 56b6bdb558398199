"""A checkpoint continues exactly where it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trainer_cases import grpo, random_batch, trainer, weights

from rl_agent.errors import ConfigError
from rl_agent.weights.disk import DiskConfig

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainer_process


@pytest.mark.parametrize("distributed_optimizer", [False, True])
def test_three_steps_after_a_resume_equal_those_of_the_uninterrupted_run(
    tiny_model: Path, tmp_path: Path, distributed_optimizer: bool
) -> None:
    algorithm = grpo(epochs=2, minibatches=2, lr_warmup_steps=4)
    with trainer(tiny_model, algorithm, distributed_optimizer=distributed_optimizer) as whole:
        for seed in range(2):
            whole.step(random_batch(seed))
        whole.save(tmp_path / "checkpoint")
        uninterrupted = [dict(whole.step(random_batch(seed)).metrics) for seed in range(2, 5)]
        expected = weights(whole)
    with trainer(tiny_model, algorithm, distributed_optimizer=distributed_optimizer) as resumed:
        resumed.load(tmp_path / "checkpoint")
        assert resumed.steps == 2
        assert [dict(resumed.step(random_batch(seed)).metrics) for seed in range(2, 5)] == uninterrupted
        assert all(tensor.equal(expected[name]) for name, tensor in weights(resumed).items())


def test_a_checkpoint_keeps_the_number_of_the_pushed_weights(tiny_model: Path, tmp_path: Path) -> None:
    sender = DiskConfig(folder=None, keep=2).build()
    sender.open(tmp_path, receivers=1)
    with trainer(tiny_model, grpo()) as one:
        update = one.push(sender, 4)
        one.save(tmp_path / "checkpoint")
    assert update.version == 4
    with trainer(tiny_model, grpo()) as other:
        other.load(tmp_path / "checkpoint")
        assert other.version == 4
        assert other.step(random_batch()).updated


def test_saving_leaves_no_process_behind(tiny_model: Path, tmp_path: Path) -> None:
    import psutil

    with trainer(tiny_model, grpo()) as one:
        one.step(random_batch())
        before = psutil.Process().children(recursive=True)
        one.save(tmp_path / "checkpoint")
        assert psutil.Process().children(recursive=True) == before


def test_a_folder_without_a_checkpoint_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with trainer(tiny_model, grpo()) as one, pytest.raises(ConfigError, match=r"metadata\.json not found"):
        one.load(tmp_path)
