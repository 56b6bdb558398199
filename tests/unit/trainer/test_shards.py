"""How a micro-batch is spread over ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rl_agent.trainer.shards import Shards

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=8)


@given(SIZES, st.integers(1, 4), st.integers(1, 4))
def test_every_token_is_held_once_and_all_ranks_hold_as_many(sizes: list[int], context: int, sequence: int) -> None:
    ranks = [Shards(context_ranks=context, context_rank=r, sequence_ranks=sequence) for r in range(context)]
    lengths = ranks[0].padded(sizes)
    assert all(length >= size for length, size in zip(lengths, sizes, strict=False))
    held = [rank.held(lengths) for rank in ranks]
    assert {len(h) for h in held} == {sum(lengths) // context}
    assert len(held[0]) % sequence == 0
    together = np.concatenate(held)
    assert sorted(together) == list(range(sum(lengths)))
    assert together[ranks[0].order(lengths)].tolist() == list(range(sum(lengths)))


@given(SIZES, st.integers(2, 4))
def test_under_a_causal_mask_all_context_ranks_have_the_same_work(sizes: list[int], context: int) -> None:
    ranks = [Shards(context_ranks=context, context_rank=r) for r in range(context)]
    lengths = ranks[0].padded(sizes)
    place = np.concatenate([np.arange(length) for length in lengths])
    assert len({int((place[rank.held(lengths)] + 1).sum()) for rank in ranks}) == 1


@given(SIZES)
def test_one_rank_pads_nothing(sizes: list[int]) -> None:
    assert Shards().padded(sizes) == sizes
