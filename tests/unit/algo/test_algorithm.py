"""The algorithm: schedule, ranges, and checks of what parts return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from algo_cases import algorithm, batch

from rl_agent.config.algo import LrDecay
from rl_agent.errors import ConfigError


def test_the_learning_rate_warms_up_in_a_straight_line_and_then_stays() -> None:
    bundle = algorithm(lr=4.0, lr_warmup_steps=4)
    assert [bundle.learning_rate(step, 10) for step in range(6)] == [1.0, 2.0, 3.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize(("decay", "middle"), [(LrDecay.linear, 0.55), (LrDecay.cosine, 0.55)])
def test_the_learning_rate_decays_to_its_floor_at_the_last_step(decay: LrDecay, middle: float) -> None:
    bundle = algorithm(lr=1.0, lr_decay=decay, lr_min_ratio=0.1)
    assert bundle.learning_rate(0, 10) == pytest.approx(1.0)
    assert bundle.learning_rate(5, 10) == pytest.approx(middle)
    assert bundle.learning_rate(10, 10) == pytest.approx(0.1)
    assert bundle.learning_rate(99, 10) == pytest.approx(0.1)


@pytest.mark.parametrize("field", ["epochs", "minibatches", "group_size"])
def test_a_count_below_one_is_refused_by_name(field: str) -> None:
    with pytest.raises(ConfigError, match=f"algo.{field}"):
        algorithm(**{field: 0})


@pytest.mark.parametrize("wrong", [np.zeros(2, dtype=np.float32), np.full(3, np.nan, dtype=np.float32)])
def test_a_part_that_returns_nonsense_is_refused_by_name(wrong: Any) -> None:
    bundle = algorithm()
    bundle.advantage = lambda _batch: wrong
    with pytest.raises(ConfigError, match=r"algo\.advantage"):
        bundle.advantages(batch([(0, [0, 1, 1])], rewards=[1]))
