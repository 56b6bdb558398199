"""A checkpoint is written while training goes on, holds what was there when it was begun, and fails loudly."""

from __future__ import annotations

import errno
import functools
import threading
from typing import TYPE_CHECKING

import pytest
from trainer_cases import grpo, random_batch, trainer, weights

from rl_agent.errors import ConfigError, InfraError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainer_process


@pytest.mark.parametrize("distributed_optimizer", [False, True])
def test_a_step_during_the_write_does_not_reach_the_checkpoint(
    tiny_model: Path, tmp_path: Path, distributed_optimizer: bool
) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        trainer(tiny_model, grpo(), distributed_optimizer=distributed_optimizer) as one,
    ):
        one.step(random_batch(0))
        expected = weights(one)
        go_on = _hold_back_writing(patch)
        one.begin_save(tmp_path / "checkpoint")
        during = [dict(one.step(random_batch(seed)).metrics) for seed in (1, 2, 3)]
        assert not one.finish_save(wait=False)  # nothing is written yet
        assert not (tmp_path / "checkpoint" / "metadata.json").exists()
        go_on.set()
        assert one.finish_save()
        one.load(tmp_path / "checkpoint")
        assert all(tensor.equal(expected[name]) for name, tensor in weights(one).items())
        assert [dict(one.step(random_batch(seed)).metrics) for seed in (1, 2, 3)] == during


def test_a_full_disk_is_an_error_that_names_the_checkpoint_and_the_remedy(tiny_model: Path, tmp_path: Path) -> None:
    from megatron.core.dist_checkpointing.strategies import filesystem_async

    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with trainer(tiny_model, grpo()) as one:
        one.step(random_batch(0))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(filesystem_async, "_write_item", full)
            one.begin_save(tmp_path / "first")
            with pytest.raises(InfraError, match=r"first could not be written .*No space left.*Free disk space"):
                one.finish_save()
        one.save(tmp_path / "second")  # the trainer itself is unharmed
        one.load(tmp_path / "second")


@pytest.mark.parametrize(
    "failure",
    [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("[enforce fail at inline_container.cc:672]")],
)
def test_a_disk_that_is_full_from_the_start_is_the_same_error(
    tiny_model: Path, tmp_path: Path, failure: Exception
) -> None:
    """Megatron writes what all ranks share at once, with PyTorch's own writer, which has its own words for it."""
    from megatron.core.dist_checkpointing.strategies import common

    def full(*_arguments: object, **_options: object) -> None:
        raise failure

    with trainer(tiny_model, grpo()) as one:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(common.torch, "save", full)
            with pytest.raises(InfraError, match=r"first could not be written .*Free disk space"):
                one.begin_save(tmp_path / "first")
        one.save(tmp_path / "second")  # nothing is left of the first that would be in its way
        one.load(tmp_path / "second")


def test_the_other_kind_of_optimizer_is_refused_with_the_remedy(tiny_model: Path, tmp_path: Path) -> None:
    with trainer(tiny_model, grpo(), distributed_optimizer=True) as one:
        one.step(random_batch(0))
        one.save(tmp_path / "checkpoint")
    with (
        trainer(tiny_model, grpo()) as other,
        pytest.raises(ConfigError, match=r"written with trainer\.distributed_optimizer=true"),
    ):
        other.load(tmp_path / "checkpoint")


def test_a_second_checkpoint_waits_for_the_first(tiny_model: Path, tmp_path: Path) -> None:
    with trainer(tiny_model, grpo()) as one:
        one.begin_save(tmp_path / "first")
        with pytest.raises(RuntimeError, match="Call finish_save first"):
            one.begin_save(tmp_path / "second")
        one.finish_save()


def _hold_back_writing(patch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing reaches the disk until the event is set."""
    from megatron.core.dist_checkpointing.strategies import filesystem_async

    go_on = threading.Event()
    original = filesystem_async._write_item

    @functools.wraps(original)  # Megatron looks at its parameters
    def write(*arguments: object, **options: object) -> object:
        assert go_on.wait(60)
        return original(*arguments, **options)

    patch.setattr(filesystem_async, "_write_item", write)
    return go_on
