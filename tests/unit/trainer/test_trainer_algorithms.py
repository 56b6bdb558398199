"""Every named algorithm on recorded rollouts of the embedded default, through the real Megatron step; critic, reference, teacher."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from trainer_cases import grpo, on_policy, random_batch, trainer, weights

from rl_agent.algo.advantage.gae import GaeConfig
from rl_agent.algo.aggregation.rollout_mean import RolloutMeanConfig
from rl_agent.algo.batch import RolloutFacts, TrainBatch
from rl_agent.algo.correction.decoupled import DecoupledConfig
from rl_agent.algo.correction.none import NoCorrectionConfig
from rl_agent.algo.correction.truncated import TruncatedConfig
from rl_agent.algo.kl.penalty import PenaltyConfig
from rl_agent.algo.loss.distillation import DistillationConfig
from rl_agent.algo.shaping.rewards import RewardsConfig
from rl_agent.config.algo import KlPlace, Need, Proximal
from rl_agent.embedded.tiny import TinyPolicyConfig
from rl_agent.errors import ConfigError
from rl_agent.rollout.records import load_segments
from tests.laws.algorithms import NAMED, algorithm

if TYPE_CHECKING:
    from rl_agent.trainer.megatron import MegatronTrainer

pytestmark = pytest.mark.trainer_process

RECORDED = Path(__file__).parents[2] / "data" / "recorded_rollouts"


@cache
def recorded() -> TrainBatch:
    """4 rollouts of a toy task by Claude Code and the tiny policy, sampled with weights number 1."""
    records = [json.loads(line) for line in (RECORDED / "step_00002.jsonl").read_text().splitlines()][:4]
    segments = load_segments(RECORDED, 2)
    groups = list(dict.fromkeys(record["group_id"] for record in records))
    own = [segments[record["rollout_id"]][0] for record in records]
    count, nothing = len(records), np.zeros(len(records), dtype=np.int32)
    return TrainBatch(
        tokens=np.concatenate([segment.tokens for segment in own]),
        loss_mask=np.concatenate([segment.loss_mask for segment in own]),
        rollout_logprobs=np.concatenate([segment.rollout_logprobs for segment in own]),
        weight_versions=np.concatenate([segment.weight_versions for segment in own]),
        segment_lengths=np.array([len(segment.tokens) for segment in own], dtype=np.int32),
        segment_rollout=np.arange(count, dtype=np.int32),
        rewards=np.array([record["reward"] for record in records], dtype=np.float32),
        rollout_group=np.array([groups.index(record["group_id"]) for record in records], dtype=np.int32),
        facts=RolloutFacts(
            truncated=nothing.astype(np.bool_),
            greedy=nothing.astype(np.bool_),
            turns=np.array([len(record["turns"]) for record in records], dtype=np.int32),
            ill_formed=nothing,
            tool_calls=nothing + 2,
            tool_errors=nothing,
        ),
    )


def tiny(scratch: Path, style: str) -> Path:
    """The embedded default's policy, with its warm start."""
    return TinyPolicyConfig(style=style).build().folder(scratch)


END_TO_END = ("grpo", "ppo", "sft")
"""What tests/e2e has with a real agent."""


@pytest.mark.slow
def test_the_named_algorithms_take_two_steps_on_recorded_rollouts(tmp_path: Path) -> None:
    policy, teacher = (tiny(tmp_path / style, style) for style in ("claude_code", "codex"))
    for name in sorted({*NAMED} - {*END_TO_END}):
        config = dataclasses.replace(algorithm(name).config, lr=1e-4, epochs=1)
        if name == "opd":
            config.loss = DistillationConfig(teacher=str(teacher))
        with trainer(policy, config.build()) as one:
            one.version = 1  # which the rollouts were sampled with
            before = weights(one)
            results = [one.step(on_policy(one, recorded())) for _ in range(2)]
            after = weights(one)
        assert all(result.updated for result in results), name
        assert any(not after[n].equal(before[n]) for n in before), name
        metrics = results[-1].metrics
        assert all(math.isfinite(value) for value in metrics.values()), (name, metrics)
        for metric in ("loss", "entropy", "grad_norm", "kl_k1", "kl_k3", "effective_sample_size"):
            assert f"train/{metric}" in metrics, (name, metric)
        assert 0 < metrics["train/effective_sample_size"] <= 1 + 1e-6, name


def gae(**fields: Any) -> Any:
    return grpo(advantage=GaeConfig(critic_lr=6e-3, value_clip=None), aggregation=RolloutMeanConfig(), **fields)


def test_the_critic_learns_what_rollouts_are_worth(tiny_model: Path) -> None:
    batch = random_batch()
    with trainer(tiny_model, gae(lr=0.0)) as one:
        steps = [one.step(batch).metrics for _ in range(14)]
        values = one.score(batch, frozenset({Need.VALUES})).values
    assert values is not None
    assert steps[0]["train/critic_loss"] > 5 * steps[-1]["train/critic_loss"]
    assert steps[-1]["train/explained_variance"] > 0.8
    trained = batch.token_rollout()[batch.loss_mask]
    solved = batch.rewards[trained] == 1
    assert values[batch.loss_mask][solved].mean() > 0.7
    assert values[batch.loss_mask][~solved].mean() < 0.3


def test_a_resumed_critic_and_coefficient_go_on_where_they_were(tiny_model: Path, tmp_path: Path) -> None:
    penalty = PenaltyConfig(place=KlPlace.reward, target=0.001, horizon=50)
    with trainer(tiny_model, gae(kl=penalty, epochs=2)) as whole:
        for seed in range(2):
            whole.step(random_batch(seed))
        whole.save(tmp_path / "checkpoint")
        expected = dict(whole.step(random_batch(2)).metrics)
        expected_values = whole.score(random_batch(), frozenset({Need.VALUES})).values
    with trainer(tiny_model, gae(kl=penalty, epochs=2)) as resumed:
        resumed.load(tmp_path / "checkpoint")
        assert dict(resumed.step(random_batch(2)).metrics) == expected
        values = resumed.score(random_batch(), frozenset({Need.VALUES})).values
    assert values is not None
    assert expected_values is not None
    np.testing.assert_array_equal(values, expected_values)
    assert expected["train/kl_coefficient"] != penalty.coefficient


def test_the_reference_stays_where_training_started(tiny_model: Path) -> None:
    batch = random_batch()
    both = frozenset({Need.OLD_LOGPROBS, Need.REFERENCE_LOGPROBS})
    with trainer(tiny_model, grpo(kl=PenaltyConfig(), correction=DecoupledConfig())) as one:
        before = one.score(batch, both)
        first = one.step(batch).metrics
        after = one.score(batch, both)
        second = one.step(batch).metrics
    assert before.old_logprobs is not None
    assert before.reference_logprobs is not None
    assert after.old_logprobs is not None
    assert after.reference_logprobs is not None
    np.testing.assert_array_equal(before.old_logprobs, before.reference_logprobs)
    np.testing.assert_array_equal(before.reference_logprobs, after.reference_logprobs)
    assert np.abs(after.old_logprobs - before.old_logprobs).max() > 1e-4
    assert first["train/reference_kl"] == 0
    assert second["train/reference_kl"] > 0
    assert first["train/correction/weight"] > 0


def test_a_score_that_nobody_gives_is_refused(tiny_model: Path) -> None:
    with trainer(tiny_model, grpo()) as one:
        with pytest.raises(ConfigError, match="teacher_logprobs"):
            one.score(random_batch(), frozenset({Need.TEACHER_LOGPROBS}))
        own = one.score(random_batch(), frozenset({Need.OLD_LOGPROBS}))
        brought = dataclasses.replace(random_batch(), scores=own)
        assert one.score(brought, frozenset({Need.OLD_LOGPROBS})).old_logprobs is own.old_logprobs


def test_distillation_brings_the_policy_to_its_teacher(tiny_model: Path, tmp_path: Path) -> None:
    batch = random_batch()
    with trainer(tiny_model, grpo(lr=3e-3)) as teacher:
        for _ in range(5):
            teacher.step(batch)
        teacher.export(tmp_path / "teacher")
    loss = DistillationConfig(teacher=str(tmp_path / "teacher"))
    needs = frozenset({Need.OLD_LOGPROBS, Need.TEACHER_LOGPROBS})

    def apart(one: MegatronTrainer) -> float:
        scores = one.score(batch, needs)
        assert scores.old_logprobs is not None
        assert scores.teacher_logprobs is not None
        return float(np.abs(scores.old_logprobs - scores.teacher_logprobs)[batch.loss_mask].mean())

    # as if sampled on-policy again and again
    with trainer(tiny_model, grpo(loss=loss, lr=1e-3, correction=recomputed())) as one:
        before = apart(one)
        for _ in range(10):
            one.step(batch)
        assert apart(one) < 0.5 * before


def recomputed() -> Any:
    return NoCorrectionConfig(proximal=Proximal.recomputed)


def test_metrics_are_told_by_staleness_and_rejections_are_counted(tiny_model: Path) -> None:
    batch = random_batch(version=0)
    places = np.flatnonzero(batch.loss_mask)
    batch.weight_versions[places[::3]] = -2 + 2  # fresh
    with trainer(tiny_model, grpo(correction=TruncatedConfig(high=1.05), epochs=1)) as one:
        one.version = 2
        batch.weight_versions[places[1::3]] = 1
        batch.weight_versions[places[2::3]] = 2
        metrics = one.step(batch).metrics
    shares = {bucket: metrics[f"train/staleness_{bucket}/share"] for bucket in ("0", "1", "2_3")}
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0.2
    assert 0 < metrics["train/correction/changed"] < 1
    assert metrics["train/correction/rejected"] == 0
    for bucket in shares:
        for name in ("ratio", "clip_fraction", "kl_k3", "correction/rejected"):
            assert f"train/staleness_{bucket}/{name}" in metrics


def test_groups_that_say_nothing_can_be_left_out(tiny_model: Path) -> None:
    batch = random_batch()
    equal = dataclasses.replace(batch, rewards=np.ones_like(batch.rewards))
    with trainer(tiny_model, grpo(shaping=RewardsConfig(drop_zero_variance=True))) as one:
        result = one.step(equal)
    assert not result.updated
    assert result.metrics["shaping/dropped_zero_variance"] == len(batch.rewards)
    assert result.metrics["train/skipped"] == 1
