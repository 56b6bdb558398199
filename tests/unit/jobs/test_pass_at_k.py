"""pass@k: worked values, the definition by counting subsets, no bias; and the intervals around its mean."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from rl_agent.jobs.checkpoints import Policy
from rl_agent.jobs.configs import EvaluateConfig
from rl_agent.jobs.evaluate import summarised, task_rows, told
from rl_agent.jobs.pass_at_k import Interval, interval, pass_at_k
from rl_agent.jobs.tally import TaskTally, totals


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 1, 2, 0.5),  # 3 of 6 pairs hold the one
        (10, 3, 1, 0.3),
        (10, 3, 5, 1 - 21 / 252),  # C(7, 5) / C(10, 5)
        (5, 0, 3, 0.0),
        (5, 3, 3, 1.0),  # any three of five hold one of three
        (200, 1, 100, 0.5),
    ],
)
def test_pass_at_k_has_the_worked_values(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_the_share_of_subsets_that_hold_a_success() -> None:
    for n in range(1, 8):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            subsets = list(itertools.combinations(range(n), k))
            share = sum(any(member < c for member in subset) for subset in subsets) / len(subsets)
            assert pass_at_k(n, c, k) == pytest.approx(share, abs=1e-12)


def test_pass_at_k_is_unbiased_where_the_plain_formula_is_not() -> None:
    n, k, p = 6, 3, 0.25
    weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    truth = 1 - (1 - p) ** k
    assert sum(w * pass_at_k(n, c, k) for c, w in enumerate(weights)) == pytest.approx(truth, abs=1e-12)
    assert sum(w * (1 - (1 - c / n) ** k) for c, w in enumerate(weights)) < truth - 0.02


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_numbers_that_make_no_sense_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@k needs"):
        pass_at_k(n, c, k)


def test_wilsons_interval_has_the_textbook_values() -> None:
    low, high = interval([1.0] * 8 + [0.0] * 2, Interval.wilson, confidence=0.95, seed=0)
    assert (low, high) == pytest.approx((0.490162, 0.943318), abs=1e-6)
    assert interval([1.0] * 10, Interval.wilson, confidence=0.95, seed=0) == pytest.approx((0.722467, 1.0), abs=1e-6)


def test_the_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for trial in range(40):
        values = rng.beta(2, 3, size=60).tolist()
        low, high = interval(values, Interval.bootstrap, confidence=0.9, seed=trial)
        assert low < float(np.mean(values)) < high
        hits += low <= 0.4 <= high
    assert 30 <= hits <= 40
    assert interval([0.5] * 5, Interval.bootstrap, confidence=0.9, seed=0) == (0.5, 0.5)
    with pytest.raises(ValueError, match="at least one task"):
        interval([], Interval.bootstrap, confidence=0.9, seed=0)


def record(status: str, reward: float | None) -> dict[str, object]:
    return {"status": status, "reward": reward, "turns": ["a"], "sampled_tokens": 5, "seconds": {"total": 2.0}}


def test_what_infrastructure_broke_counts_as_no_failure() -> None:
    half = TaskTally(task_id="half")
    for status, reward in (("solved", 1.0), ("failed", 0.0), ("infra_error", None), ("sandbox_error", None)):
        half.add(record(status, reward))
    lost = TaskTally(task_id="lost")
    lost.add(record("engine_error", None))
    job = EvaluateConfig(k=[1, 2, 4])
    rows = task_rows([half, lost], job.k, Policy(folder=None, version=7, name="x"))  # type: ignore[arg-type]
    assert [row["pass@1"] for row in rows] == [0.5, None]
    assert [row["pass@2"] for row in rows] == [1.0, None]
    assert rows[0]["weight_version"] == 7
    figures = summarised(rows, job, seed=0) | totals([half, lost])
    assert figures["pass@1"] == 0.5
    assert figures["pass@1/tasks_left_out"] == 1
    assert "pass@4" not in figures
    assert figures["solved_rate"] == 0.5
    assert figures["without_reward"] == 3
    lines = told(figures, job)
    assert lines[0].startswith("pass@1: 0.500  [")
    assert "1 tasks left out" in lines[0]
    assert lines[2].startswith("pass@4: unknown")
