"""How segments are spread over micro-batches, and rollouts over minibatches. Needs no Megatron."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from trainer_cases import random_batch

from rl_agent.trainer.bin_packing import PADDING_LIMIT, alike, pack


@given(
    lengths=st.lists(st.integers(0, 50), max_size=30),
    budget=st.integers(1, 100),
    copies=st.integers(1, 4),
)
def test_every_segment_that_predicts_something_stands_in_one_micro_batch(
    lengths: list[int], budget: int, copies: int
) -> None:
    sizes = np.array(lengths, dtype=np.int32)
    bins = pack(sizes, budget=budget, copies=copies)
    assert len(bins) % copies == 0
    assert sorted(s for own in bins for s in own) == [i for i, size in enumerate(lengths) if size > 1]
    for own in bins:
        predictions = [lengths[s] - 1 for s in own]
        assert sum(predictions) <= max([budget, *(size - 1 for size in lengths)])
        assert predictions == sorted(predictions, reverse=True)


def test_a_segment_longer_than_the_budget_goes_alone() -> None:
    bins = pack(np.array([5, 100, 5], dtype=np.int32), budget=10, copies=1)
    assert [1] in bins


def test_a_minibatch_holds_whole_rollouts() -> None:
    batch = random_batch()
    part, places = batch.select(np.array([0, 3], dtype=np.int32))
    assert part.segment_rollout.tolist() == [0, 0, 1]  # rollout 0 has two segments
    assert part.segment_lengths.tolist() == [19, 7, 2]
    assert (batch.tokens[places] == part.tokens).all()
    assert part.rewards.tolist() == batch.rewards[[0, 3]].tolist()


def test_copies_have_the_same_work_in_attention_too() -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(np.log(1200), 0.75, 256), 512, 4096).astype(np.int32)
    bins = pack(lengths, budget=4096, copies=8)
    tokens = [sum(int(lengths[s]) for own in bins[copy::8] for s in own) for copy in range(8)]
    squares = [sum(int(lengths[s]) ** 2 for own in bins[copy::8] for s in own) for copy in range(8)]
    assert max(tokens) < 1.05 * sum(tokens) / 8
    assert max(squares) < 1.05 * sum(squares) / 8


@given(lengths=st.lists(st.integers(1, 300), max_size=30))
def test_what_shares_a_call_of_attention_is_of_about_the_same_length(lengths: list[int]) -> None:
    runs = list(alike(sorted(lengths, reverse=True)))
    assert [size for run in runs for size in run] == sorted(lengths, reverse=True)
    assert all(run[0] <= PADDING_LIMIT * run[-1] for run in runs)
