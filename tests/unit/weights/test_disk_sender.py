"""The trainer's half of the disk backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from rl_agent.errors import ConfigError, WeightPushError
from rl_agent.weights.disk import DiskConfig, DiskSender
from rl_agent.weights.safetensors_folder import TensorFolder, write_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def tensors(value: float, count: int = 3) -> Iterator[tuple[str, torch.Tensor]]:
    return ((f"t{i}", torch.full((4,), value + i)) for i in range(count))


def opened(tmp_path: Path, keep: int = 2) -> DiskSender:
    sender = DiskConfig(folder=None, keep=keep).build()
    sender.open(tmp_path, receivers=1)
    return sender


def test_what_is_sent_can_be_read(tmp_path: Path) -> None:
    update = opened(tmp_path).send(tensors(5.0), 1)
    folder = TensorFolder(tmp_path / "weights" / "v00000001")
    assert update.update_info == {"path": str(tmp_path / "weights" / "v00000001"), "tensors": 3}
    assert {name: folder[name].tolist() for name in folder} == {f"t{i}": [5.0 + i] * 4 for i in range(3)}


def test_only_the_last_versions_are_kept(tmp_path: Path) -> None:
    sender = opened(tmp_path)
    for version in (8, 9, 10):
        sender.send(tensors(version), version)
    assert sorted(p.name for p in (tmp_path / "weights").iterdir()) == ["v00000009", "v00000010"]


def test_a_version_that_is_sent_again_replaces_the_old_one(tmp_path: Path) -> None:
    sender = opened(tmp_path)
    sender.send(tensors(1.0), 3)
    sender.send(tensors(2.0), 3)
    assert TensorFolder(tmp_path / "weights" / "v00000003")["t0"].tolist() == [2.0] * 4


def test_a_version_is_not_visible_before_it_is_whole(tmp_path: Path) -> None:
    def dies() -> Iterator[tuple[str, torch.Tensor]]:
        yield "t0", torch.ones(1)
        raise OSError("no space left")

    with pytest.raises(WeightPushError, match="weights number 7"):
        opened(tmp_path).send(dies(), 7)
    assert not list((tmp_path / "weights").glob("v*"))


def test_a_configured_folder_holds_each_run_apart_and_close_removes_it(tmp_path: Path) -> None:
    sender = DiskConfig(folder=str(tmp_path / "shared"), keep=2).build()
    sender.open(tmp_path / "runs" / "first", receivers=1)
    update = sender.send(tensors(1.0), 1)
    assert update.update_info["path"] == str(tmp_path / "shared" / "first" / "v00000001")
    sender.close()
    assert not (tmp_path / "shared" / "first").exists()


def test_sending_before_opening_and_a_relative_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightPushError, match="open"):
        DiskConfig(folder=None, keep=2).build().send(tensors(1.0), 1)
    with pytest.raises(ConfigError, match="absolute"):
        DiskConfig(folder="weights", keep=2).build()


def test_many_tensors_fill_several_files_with_an_index(tmp_path: Path) -> None:
    assert write_tensors(tmp_path, tensors(0.0, count=5), shard_bytes=32) == 5
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [*(f"model-{i:05d}-of-00003.safetensors" for i in (1, 2, 3)), "model.safetensors.index.json"]
    assert len(TensorFolder(tmp_path)) == 5
