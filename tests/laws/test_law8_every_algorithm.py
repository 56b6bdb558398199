"""Law 8 for every algorithm: cutting, reordering or spreading a batch changes neither loss nor gradient.

Also law 4: rollouts that infrastructure broke are in no statistics. Sequences of a *loss* (GSPO, geometric mean) are segments, so
these two losses change when a rollout is cut. Sequences of a correction over a recomputed policy are rollouts.
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.ports import hold_port, number
from rl_agent.rollout.batch import build_batch
from rl_agent.rollout.group import Group, Rollout
from rl_agent.tokens.segment import Segment, SegmentKind
from tests.laws.algorithms import (
    NAMED,
    VERSION,
    algorithm,
    batches,
    current,
    cut,
    loss_and_gradient,
    random_batch,
    reordered,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.algo.algorithm import Algorithm
    from rl_agent.algo.batch import TrainBatch

ADVANTAGES = ("grpo", "grpo_no_std", "rloo", "reinforce_plus_plus", "maxrl", "opo", "pass_at_k", "remax", "gae")
LOSSES = ("ppo_clip", "dual_clip", "cispo", "sapo", "dppo", "dppo_kl", "clip_cov", "kl_cov", "reinforce", "dro")
CORRECTIONS = (
    "none",
    "truncated",
    "truncated_sequence",
    "icepop",
    "masked",
    "masked_sequence",
    "rejection",
    "decoupled",
)
KLS = ("none", "penalty", "penalty_in_reward")
AGGREGATIONS = ("rollout_mean", "token_mean", "token_sum")


def assert_same(one: tuple[float, np.ndarray], other: tuple[float, np.ndarray]) -> None:
    assert one[0] == pytest.approx(other[0], abs=1e-6, rel=1e-5)
    np.testing.assert_allclose(one[1], other[1], atol=1e-6, rtol=1e-5)


@given(
    name=st.sampled_from(NAMED),
    batch=batches(),
    budget=st.integers(1, 60),
    copies=st.integers(1, 4),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=200)
def test_micro_batches_copies_and_order_change_nothing(
    name: str, batch: TrainBatch, budget: int, copies: int, seed: int
) -> None:
    bundle = algorithm(name)
    whole = loss_and_gradient(bundle, batch)
    assert_same(loss_and_gradient(bundle, reordered(batch, seed), budget=budget, copies=copies), whole)


@given(
    parts=st.tuples(
        st.sampled_from(ADVANTAGES),
        st.sampled_from(LOSSES),
        st.sampled_from(CORRECTIONS),
        st.sampled_from(KLS),
        st.sampled_from(AGGREGATIONS),
    ),
    batch=batches(),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=200)
def test_cutting_rollouts_into_more_segments_changes_nothing(
    parts: tuple[str, ...], batch: TrainBatch, seed: int
) -> None:
    bundle = mixed(*parts)
    whole = loss_and_gradient(bundle, batch)
    assert_same(loss_and_gradient(bundle, reordered(cut(batch), seed), budget=7, copies=3), whole)


def mixed(advantage: str, loss: str, correction: str, kl: str, aggregation: str) -> Algorithm:
    return algorithm("grpo", advantage=advantage, loss=loss, correction=correction, kl=kl, aggregation=aggregation)


def test_sabotage_a_denominator_that_a_rejection_changes_is_noticed() -> None:
    batch = random_batch([[9, 9], [9], [9, 9], [9], [9], [9]], seed=4)
    honest = mixed("grpo", "ppo_clip", "icepop", "none", "token_mean")
    ready = honest.prepared(batch)
    assert ready.correction is not None
    kept = batch.loss_mask & (ready.correction > 0)
    assert kept.sum() < batch.loss_mask.sum()  # something is rejected
    by_kept = mixed("grpo", "ppo_clip", "icepop", "none", "token_mean")
    by_kept.aggregation = lambda _b: (kept / kept.sum()).astype(np.float32)
    with pytest.raises(AssertionError):
        assert_same(loss_and_gradient(by_kept, batch), loss_and_gradient(honest, batch))


def share(rank: int, port: int, bundles: dict[str, Algorithm]) -> dict[str, tuple[float, np.ndarray]]:
    """Return the losses and gradients of one of two gloo ranks after the all-reduce."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", port, 2, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    found = {}
    batch = random_batch([[9, 4], [7], [3, 8, 2], [9], [1], [6]], seed=11)
    for name, bundle in bundles.items():
        loss, gradient = loss_and_gradient(bundle, batch, budget=12, copies=2, only=[rank])
        summed = torch.cat([torch.tensor([loss], dtype=torch.float64), torch.from_numpy(gradient)])
        dist.all_reduce(summed)
        found[name] = float(summed[0]), summed[1:].numpy()
    dist.destroy_process_group()
    return found


@pytest.fixture(scope="module")
def ranks() -> Iterator[ProcessPoolExecutor]:
    """Start two processes. Given two tasks at once, each runs one."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(abs, range(2)))
        yield pool


@pytest.mark.slow
def test_two_gloo_ranks_have_the_loss_and_gradient_of_one(ranks: ProcessPoolExecutor) -> None:
    bundles = {name: algorithm(name) for name in NAMED}
    with hold_port("127.0.0.1") as held:
        both = [ranks.submit(share, rank, number(held), bundles) for rank in range(2)]
        of_ranks = [future.result(timeout=120) for future in both]
    batch = random_batch([[9, 4], [7], [3, 8, 2], [9], [1], [6]], seed=11)
    for name in NAMED:
        whole = loss_and_gradient(bundles[name], batch)
        for found in of_ranks:
            assert_same(found[name], whole)


def rollout(number: int, reward: float | None, status: VerdictStatus) -> Rollout:
    mask = np.array([False, True, True, False, True])
    segment = Segment(
        kind=SegmentKind.MAIN,
        tokens=np.arange(5, dtype=np.int32) + 5 * number,
        loss_mask=mask,
        rollout_logprobs=np.where(mask, -1.0 - 0.1 * number, 0.0).astype(np.float32),
        weight_versions=np.where(mask, VERSION, -1).astype(np.int32),
    )
    return Rollout(
        rollout_id=f"r{number}",
        group_id="g",
        task_id="t",
        attempt=0,
        verdict=Verdict(status=status, reward=reward),
        segments=(segment,),
        sampled_tokens=3,
    )


@pytest.mark.parametrize("name", ["grpo", "rloo", "dapo", "maxrl", "gspo", "cispo"])
def test_rollouts_that_infrastructure_broke_change_nothing(name: str) -> None:
    good = [rollout(number, float(number % 2), VerdictStatus.FAILED) for number in range(4)]
    broken = rollout(9, None, VerdictStatus.INFRA_ERROR)
    task: Any = None
    clean = build_batch([Group(group_id="g", task=task, rollouts=tuple(good))])
    assert clean is not None
    needs = dataclasses.replace(random_batch([[5]] * 4, seed=1).scores)
    bundle = algorithm(name)
    expected = loss_and_gradient(bundle, dataclasses.replace(clean, scores=needs))
    for place in range(5):
        rollouts = (*good[:place], broken, *good[place:])
        mixed_in = build_batch([Group(group_id="g", task=task, rollouts=rollouts)])
        assert mixed_in is not None
        assert_same(loss_and_gradient(bundle, dataclasses.replace(mixed_in, scores=needs)), expected)


EXTREMES = [-np.inf, -1e30, -50.0, -1.0, 0.0]


@given(
    name=st.sampled_from(NAMED),
    loss=st.sampled_from((None, *LOSSES, "gspo", "gspo_token", "geometric_mean")),
    correction=st.sampled_from((None, *CORRECTIONS, "truncated_current", "decoupled_approximated")),
    batch=batches(),
    seed=st.integers(0, 99),
    empty=st.booleans(),
)
@settings(deadline=None, max_examples=250)
def test_no_value_is_nan_whatever_the_probabilities(
    name: str, loss: str | None, correction: str | None, batch: TrainBatch, seed: int, empty: bool
) -> None:
    random = np.random.default_rng(seed)
    size = len(batch.tokens)
    mask = np.zeros(size, dtype=np.bool_) if empty else batch.loss_mask

    def extreme() -> Any:
        return random.choice(EXTREMES, size).astype(np.float32)

    scores = dataclasses.replace(
        batch.scores, old_logprobs=extreme(), reference_logprobs=extreme(), teacher_logprobs=extreme()
    )
    batch = dataclasses.replace(batch, loss_mask=mask, rollout_logprobs=extreme(), scores=scores)
    changes = {"loss": loss, "correction": correction}
    bundle = algorithm(name, **{group: option for group, option in changes.items() if option is not None})
    model = torch.from_numpy(random.choice(EXTREMES, len(current(batch))))
    value, gradient = loss_and_gradient(bundle, batch, model=model)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
