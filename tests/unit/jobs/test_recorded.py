"""Offline jobs refuse what they cannot train on, and say why."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from omegaconf import OmegaConf

from rl_agent.config.rollout import SaveRollouts
from rl_agent.errors import ConfigError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.jobs.recorded import (
    require_known_tokens,
    require_plain_sampling,
    require_recorded,
    require_whole_groups,
)
from rl_agent.jobs.sft import _batches_of, _chosen
from rl_agent.rollout import records
from rl_agent.rollout.group import Rollout
from rl_agent.tokens.segment import Segment, SegmentKind

if TYPE_CHECKING:
    from pathlib import Path


def rollout(number: int, reward: float, token: int = 5) -> Rollout:
    mask = np.array([False, True, True])
    return Rollout(
        rollout_id=f"00000-{number // 2:03d}-{number % 2:02d}",
        group_id=f"00000-{number // 2:03d}",
        task_id="t",
        attempt=0,
        verdict=Verdict(status=VerdictStatus.SOLVED if reward == 1.0 else VerdictStatus.FAILED, reward=reward),
        segments=(
            Segment(
                kind=SegmentKind.MAIN,
                tokens=np.array([number, token, token], dtype=np.int32),
                loss_mask=mask,
                rollout_logprobs=np.where(mask, -1, 0).astype(np.float32),
                weight_versions=np.where(mask, 0, -1).astype(np.int32),
            ),
        ),
    )


def recorded(root: Path, *rollouts: Rollout, step: int = 1) -> Path:
    records.save(root / "rollouts", step, records.grouped(rollouts), SaveRollouts.all)
    return root


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    shape = {"model_type": "qwen3", "hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 50}
    shape |= {
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e4,
    }
    shape |= {"tie_word_embeddings": True, "hidden_act": "silu", "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(shape))
    return folder


def test_a_run_folder_that_is_missing_or_has_no_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.replay=.*nowhere: run folder not found"):
        require_recorded(tmp_path / "nowhere", "data.replay")
    with pytest.raises(ConfigError, match=r"no recorded rollouts.*rollout\.save=all"):
        require_recorded(tmp_path, "data.replay")
    assert require_recorded(recorded(tmp_path, rollout(0, 1.0), step=12), "data.replay") == [12]


@pytest.mark.parametrize(("saved", "whole"), [("all", True), ("failures", False)])
def test_a_run_that_kept_failures_only_cannot_be_replayed(tmp_path: Path, saved: str, whole: bool) -> None:
    OmegaConf.save({"rollout": {"save": saved}}, tmp_path / "config.yaml")
    if whole:
        require_whole_groups(tmp_path, "data.replay")
    else:
        with pytest.raises(ConfigError, match="groups are incomplete"):
            require_whole_groups(tmp_path, "data.replay")


def test_rollouts_that_were_drawn_at_another_temperature_cannot_be_replayed(tmp_path: Path) -> None:
    OmegaConf.save({"rollout": {"sampling": {"temperature": 1.0, "top_k": -1}}}, tmp_path / "config.yaml")
    require_plain_sampling(tmp_path, "data.replay")
    OmegaConf.save({"rollout": {"sampling": {"temperature": 0.6}}}, tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match=r"rollout\.sampling\.temperature=0\.6.*job=sft"):
        require_plain_sampling(tmp_path, "data.replay")


def test_rollouts_of_another_model_are_refused(tmp_path: Path, model: Path) -> None:
    require_known_tokens([rollout(0, 1.0, token=49)], model, "data.replay=x")
    with pytest.raises(ConfigError, match=r"token 50.*ends at 49"):
        require_known_tokens([rollout(0, 1.0, token=50)], model, "data.replay=x")


def test_rejection_sampling_takes_what_earned_enough_and_each_once_an_epoch(tmp_path: Path, model: Path) -> None:
    rewards = (1.0, 0.0, 0.5, 1.0, 1.0, 0.5)
    root = recorded(tmp_path, *(rollout(number, reward) for number, reward in enumerate(rewards)))
    chosen = _chosen(root, 1.0, model)
    assert [one.segments[0].tokens[0] for one in chosen] == [0, 3, 4]
    assert len(_chosen(root, 0.5, model)) == 5
    with pytest.raises(ConfigError, match=r"none of its 6 rollouts has job\.min_reward=2\.0.*the best reward is 1\.0"):
        _chosen(root, 2.0, model)
    batches = list(itertools.islice(_batches_of(_chosen(root, 0.5, model), 0, 2), 5))  # two epochs of five
    firsts = [int(token) for batch in batches for token in batch.tokens[batch.segment_starts()]]
    assert sorted(firsts[:5]) == sorted(firsts[5:]) == [0, 2, 3, 4, 5]
    assert all((batch.weight_versions == -1).all() and (batch.rewards == 1).all() for batch in batches)
