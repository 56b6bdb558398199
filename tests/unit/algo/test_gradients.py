"""Every loss and its gradient against autograd on a naive float64 reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import naive
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agent.algo.advantage.value_loss import value_loss
from rl_agent.algo.kl.estimate import estimate
from rl_agent.config.algo_parts import KlEstimator
from tests.laws.algorithms import algorithm, batches, current, loss_and_gradient

if TYPE_CHECKING:
    from rl_agent.algo.batch import TrainBatch


def reference(name: str, bundle: Any, batch: TrainBatch) -> tuple[float, np.ndarray]:
    """The loss of the batch, put together token by token."""
    parameters = current(batch).requires_grad_()
    ready = bundle.prepared(batch)
    weights = bundle.weights(batch)
    total: Any = 0.0 * parameters.sum()
    starts = batch.segment_starts()
    teacher = batch.scores.teacher_logprobs
    assert teacher is not None
    for start, size in zip(starts, batch.segment_lengths, strict=True):
        places = [t for t in range(start, start + size) if batch.loss_mask[t]]
        ps = [parameters[int(batch.tokens[t])] for t in places]
        qs = [float(ready.old_logprobs[t]) for t in places]
        a = [float(ready.advantages[t]) for t in places]
        if name in naive.SEQUENCE:
            losses = naive.SEQUENCE[name](ps, qs, a) if places else []
        else:
            marks = [ready.marked is not None and bool(ready.marked[t]) for t in places]
            losses = [
                naive.TOKEN[name](p, q, own, marked=mark, teacher=float(teacher[t]))
                for p, q, own, mark, t in zip(ps, qs, a, marks, places, strict=True)
            ]
        for t, loss in zip(places, losses, strict=True):
            factor = 1.0 if ready.correction is None else float(ready.correction[t])
            total = total + float(weights[t]) * factor * loss
    total.backward()
    assert parameters.grad is not None
    return total.item(), parameters.grad.numpy()


@given(
    name=st.sampled_from([*naive.TOKEN, *naive.SEQUENCE]),
    correction=st.sampled_from(["none", "tis", "decoupled"]),
    batch=batches(),
)
@settings(deadline=None, max_examples=150)
def test_loss_and_gradient_are_those_of_the_naive_reference(name: str, correction: str, batch: TrainBatch) -> None:
    bundle = algorithm("grpo", advantage="grpo_no_std", loss=name, correction=correction)
    loss, gradient = loss_and_gradient(bundle, batch)
    expected, expected_gradient = reference(name, bundle, batch)
    assert loss == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)


@given(
    estimator=st.sampled_from(list(KlEstimator)),
    p=st.lists(st.floats(-6, 0), min_size=1, max_size=8),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=100)
def test_divergences_and_their_gradients_are_those_of_the_naive_reference(
    estimator: KlEstimator, p: list[float], seed: int
) -> None:
    other = np.random.default_rng(seed).uniform(-6, 0, len(p))
    logprobs = torch.tensor(p, dtype=torch.float64, requires_grad=True)
    value = estimate(torch.from_numpy(other) - logprobs, estimator)
    (gradient,) = torch.autograd.grad(value.sum(), logprobs)
    expected = [naive.kl(x, float(q), estimator) for x, q in zip(logprobs, other, strict=True)]
    (expected_gradient,) = torch.autograd.grad(torch.stack(expected).sum(), logprobs)
    np.testing.assert_allclose(value.detach(), torch.stack(expected).detach(), atol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)


def test_the_critics_loss_is_half_the_larger_squared_error() -> None:
    # free: 0.5 * 1; clipped to 0.7: 0.5 * 1.3^2; within the clip: the same; without a clip: 0.5
    values = torch.tensor([1.0, 1.0, 0.6, 3.0], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([1.0, 0.5, 0.5, 0.5], dtype=torch.float64)
    goal = torch.tensor([2.0, 2.0, 2.0, 2.0], dtype=torch.float64)
    loss = value_loss(values, old, goal, 0.2)
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([0.5, 0.845, 0.98, 0.845])
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([-1, 0, -1.4, 0])
    assert value_loss(values, old, goal, None).tolist() == pytest.approx([0.5, 0.5, 0.98, 0.5])
