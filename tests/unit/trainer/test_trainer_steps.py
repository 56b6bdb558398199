"""What a training step does: to the weights, to the metrics, and when it must do nothing."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from trainer_cases import gradients, grpo, on_policy, random_batch, segments, sft, trainer, weights

from rl_agent.algo.correction.masked import MaskedConfig

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.algo.batch import TrainBatch

pytestmark = pytest.mark.trainer_process


def test_the_first_epochs_logprobs_are_those_that_score_gives(tiny_model: Path) -> None:
    with trainer(tiny_model, grpo()) as one:
        metrics = one.step(on_policy(one, random_batch())).metrics
    assert metrics["train/logprob_diff_max"] < 1e-5
    assert abs(metrics["train/ratio"] - 1) < 1e-5
    assert metrics["train/clip_fraction"] == 0


def test_a_gap_to_the_sampler_is_measured_on_tokens_of_the_current_weights_only(tiny_model: Path) -> None:
    with trainer(tiny_model, grpo()) as one:
        batch = on_policy(one, random_batch())
        stale = dataclasses.replace(batch, rollout_logprobs=batch.rollout_logprobs.copy())
        trained = np.flatnonzero(batch.loss_mask)
        stale.weight_versions[trained[0]] = 7
        stale.rollout_logprobs[trained[0]] -= 0.5  # of other weights: not counted
        stale.rollout_logprobs[trained[1]] -= 0.25
        metrics = one.step(stale).metrics
    assert metrics["train/logprob_diff_max"] == pytest.approx(0.25, abs=1e-4)
    assert metrics["train/logprob_diff_mean"] == pytest.approx(0.25 / (len(trained) - 1), abs=1e-4)


def test_without_a_token_of_the_current_weights_no_gap_is_reported(tiny_model: Path) -> None:
    with trainer(tiny_model, grpo()) as one:
        metrics = one.step(random_batch(version=3)).metrics
    assert "train/logprob_diff_max" not in metrics


def test_scores_of_a_sequence_do_not_depend_on_its_company(tiny_model: Path) -> None:
    batch = random_batch()
    with trainer(tiny_model, grpo(), micro_batch_tokens=40) as one:
        together = one.logprobs(segments(batch))
        alone = [one.logprobs([tokens])[0] for tokens in segments(batch)]
    assert [len(scores) for scores in together] == [len(tokens) - 1 for tokens in segments(batch)]
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_sequences_too_short_to_predict_anything_score_empty(tiny_model: Path) -> None:
    with trainer(tiny_model, grpo()) as one:
        got = one.logprobs(
            [np.array([], dtype=np.int32), np.array([3], dtype=np.int32), np.array([3, 4], dtype=np.int32)]
        )
        nothing = one.logprobs([])
    assert [len(scores) for scores in got] == [0, 0, 1]
    assert got[2][0] < 0
    assert nothing == []


def _no_signal(kind: str) -> TrainBatch:
    batch = random_batch()
    if kind == "no trained token":
        return dataclasses.replace(batch, loss_mask=np.zeros_like(batch.loss_mask))
    if kind == "all rewards equal":
        return dataclasses.replace(batch, rewards=np.ones_like(batch.rewards))
    broken = batch.rollout_logprobs.copy()
    broken[batch.loss_mask] = np.nan
    return dataclasses.replace(batch, rollout_logprobs=broken)


@pytest.mark.parametrize("kind", ["no trained token", "all rewards equal", "non-finite gradient"])
def test_a_batch_without_signal_changes_nothing(tiny_model: Path, kind: str) -> None:
    with trainer(tiny_model, grpo(), weight_decay=0.1) as other:
        other.step(random_batch(1))
        other.step(random_batch(2))
        expected = weights(other)
    with trainer(tiny_model, grpo(), weight_decay=0.1) as one:
        one.step(random_batch(1))
        before, steps = weights(one), one.steps
        result = one.step(_no_signal(kind))
        after = weights(one)
        assert not result.updated
        assert result.metrics["train/skipped"] == 1
        assert one.steps == steps
        assert all(before[name].equal(after[name]) for name in before)
        one.step(random_batch(2))  # the momentum is untouched too: the next step is as if nothing had been
        assert all(tensor.equal(expected[name]) for name, tensor in weights(one).items())


def test_sft_of_a_tiny_model_lowers_its_loss(tiny_model: Path) -> None:
    with trainer(tiny_model, sft(lr_warmup_steps=3), total_steps=30) as one:
        losses = [one.step(random_batch()).metrics["train/loss"] for _ in range(30)]
        scores = one.logprobs(segments(random_batch()))
    assert losses[0] > 4
    assert losses[-1] < 0.3 * losses[0]
    assert np.concatenate(scores).mean() > -3


def test_minibatches_and_epochs_are_that_many_optimizer_steps(tiny_model: Path) -> None:
    batch = random_batch()
    mixed = dataclasses.replace(batch, rewards=(np.arange(len(batch.rewards)) % 2).astype(np.float32))
    with trainer(tiny_model, grpo(epochs=2, minibatches=2)) as one:
        assert one.step(mixed).updated
        steps = {int(s["step"]) for s in one._joined()._optimizer.chained_optimizers[0].optimizer.state.values()}
    assert steps == {4}


@pytest.mark.parametrize("fault", ["rejected", "not finite"])
@pytest.mark.parametrize("bad", [0, 1])
def test_a_minibatch_without_signal_is_passed_over_and_the_others_train(tiny_model: Path, fault: str, bad: int) -> None:
    options: dict[str, Any] = {"correction": MaskedConfig()} if fault == "rejected" else {}
    with trainer(tiny_model, grpo(minibatches=2, **options)) as one:
        batch = on_policy(one, random_batch())
        mixed = dataclasses.replace(batch, rewards=(np.arange(len(batch.rewards)) % 2).astype(np.float32))
        _, places = list(one._parts(mixed))[bad]
        mixed.rollout_logprobs[places[mixed.loss_mask[places]]] += 0.5 if fault == "rejected" else np.nan
        result = one.step(mixed)
        (state, *_) = one._joined()._optimizer.chained_optimizers[0].optimizer.state.values()
    assert result.updated
    assert result.metrics["train/skipped"] == 0.5
    assert np.isfinite(result.metrics["train/grad_norm"])
    assert int(state["step"]) == 1


def test_the_learning_rate_and_decay_reach_only_matrices(tiny_model: Path) -> None:
    with trainer(tiny_model, grpo(lr=0.0), weight_decay=0.1) as one:
        before = weights(one)
        one.step(random_batch())
        groups = one._joined()._optimizer.param_groups
        assert sorted((g["lr"], g["weight_decay"]) for g in groups) == [(0.0, 0.0), (0.0, 0.1)]
        assert all(before[name].equal(tensor) for name, tensor in weights(one).items())


@pytest.mark.parametrize("budget", [1, 40, 100_000])
def test_loss_and_gradient_do_not_depend_on_micro_batches_or_order(tiny_model: Path, budget: int) -> None:
    batch = random_batch()
    order = np.random.default_rng(budget).permutation(len(batch.segment_lengths))
    with trainer(tiny_model, grpo(lr=0.0), grad_clip=0.0) as one:
        loss = one.step(batch).metrics["train/loss"]
        expected = gradients(one)
    with trainer(tiny_model, grpo(lr=0.0), grad_clip=0.0, micro_batch_tokens=budget) as one:
        assert one.step(reordered(batch, order)).metrics["train/loss"] == pytest.approx(loss, abs=1e-6)
        for name, gradient in gradients(one).items():
            np.testing.assert_allclose(gradient, expected[name], atol=1e-6, err_msg=name)


def reordered(batch: TrainBatch, order: np.ndarray) -> TrainBatch:
    """The same segments in another order."""
    starts = batch.segment_starts()
    tokens = np.concatenate([np.arange(starts[s], starts[s] + batch.segment_lengths[s]) for s in order])
    return dataclasses.replace(
        batch,
        tokens=batch.tokens[tokens],
        loss_mask=batch.loss_mask[tokens],
        rollout_logprobs=batch.rollout_logprobs[tokens],
        weight_versions=batch.weight_versions[tokens],
        segment_lengths=batch.segment_lengths[order],
        segment_rollout=batch.segment_rollout[order],
    )


def test_logits_a_part_at_a_time_give_the_same_loss_and_gradient(tiny_model: Path) -> None:
    found = []
    for chunk in (4096, 7):
        with trainer(tiny_model, grpo(), output_chunk_tokens=chunk, grad_clip=0.0) as one:
            metrics = one.step(random_batch()).metrics
            found.append((metrics, gradients(one)))
    (whole, expected), (parts, gradient) = found
    assert dict(parts) == pytest.approx(dict(whole), rel=1e-5, abs=1e-7)
    for name, values in gradient.items():
        np.testing.assert_allclose(values, expected[name], atol=1e-6, err_msg=name)


def test_no_more_logits_exist_at_a_time_than_a_part_has(tiny_model: Path) -> None:
    from rl_agent.trainer import output

    sizes = []
    real = output.logprobs_and_entropy

    def counting(logits: Any, labels: Any, **options: Any) -> Any:
        sizes.append(len(logits))
        return real(logits, labels, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "logprobs_and_entropy", counting)
        with trainer(tiny_model, grpo(), output_chunk_tokens=7) as one:
            one.step(random_batch())
    assert max(sizes) == 7
    assert sum(sizes) >= 2 * (int(random_batch().segment_lengths.sum()) - len(random_batch().segment_lengths))
