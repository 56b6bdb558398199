"""Tokens, sandbox-hours and time of one training step under stated assumptions. docs/recipes.md has the formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from rl_agent.plan.parameters import count_parameters

if TYPE_CHECKING:
    from rl_agent.trainer.shape import ModelShape

P95: float = NormalDist().inv_cdf(0.95)


@dataclass(kw_only=True)
class Assumptions:
    """Assumptions of a plan about tasks, agents and machines. Measure yours with `job=rollout`."""

    agent_median_s: float = 360.0
    """Median duration of an agent run. The distribution is log-normal; the defaults are those of real coding agents."""
    agent_p95_s: float = 1500.0
    """95th percentile of the duration of an agent run."""
    grading_s: float = 90.0
    """Mean duration of grading, including the boot of its sandbox."""
    set_up_s: float = 30.0
    """Mean duration of booting and preparing the agent's sandbox."""
    context_tokens: int = 48_000
    """Mean length of a finished conversation."""
    sampled_tokens: int = 12_000
    """Mean number of sampled tokens per rollout."""
    engine_tokens_per_s: float = 1500.0
    """Tokens that one GPU of the policy servers samples per second, over many concurrent conversations."""
    trainer_tflops: float = 200.0
    """Achieved TFLOP/s of one trainer GPU: a fifth to two fifths of its peak."""
    push_s: float = 10.0
    """Duration of a weight push."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work of one step."""

    rollouts: int
    """Number of started rollouts, including extra ones."""
    max_context_tokens: int
    max_concurrent: int
    agent_budget_s: float
    guard_s: float
    synchronous: bool
    """True if sampling and training alternate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Time and tokens of one step."""

    agent_mean_s: float
    sampled_tokens: float
    trained_tokens: float
    """Number of positions in the trainer, including prompts and tool results."""
    most_tokens: int
    """Upper bound of `trained_tokens` with one segment per rollout."""
    sandbox_hours: float
    most_sandbox_hours: float
    sampling_s: float
    training_s: float
    push_s: float
    step_s: float
    bound_by: str
    """The slowest part."""

    @property
    def steps_per_hour(self) -> float:
        """Training steps per hour."""
        return 3600.0 / self.step_s


def agent_seconds(median_s: float, p95_s: float, *, longest_of: int = 0) -> float:
    """Return the mean of a log-normal duration. With `longest_of` n, return the approximate maximum of n durations.

    sigma = ln(p95 / median) / 1.645; mean = median exp(sigma^2 / 2). The maximum of n is near the quantile 1 - 1 / (n +
    1).
    """
    sigma = math.log(p95_s / median_s) / P95
    if not longest_of:
        return median_s * math.exp(sigma * sigma / 2)
    return median_s * math.exp(sigma * NormalDist().inv_cdf(1 - 1 / (longest_of + 1)))


def training_flops(shape: ModelShape, *, tokens: float, context: float, recompute: bool) -> float:
    """Return the operations of one pass over a batch: 6 N + 6 L A T per token, a third more with recompute.

    N active parameters take 2 N forward and 4 N backward (Kaplan et al. 2020, arXiv 2001.08361). Causal softmax
    attention of L layers with A = heads x d over T positions takes 2 L A T forward: two products, half of them masked.
    The gated delta rule, which is linear in T, is not counted.
    """
    softmax_layers = shape.layers - (sum(shape.linear.layers) if shape.linear else 0)
    attention = 6 * softmax_layers * shape.heads * shape.head_dim * context
    return tokens * (6 * count_parameters(shape).active + attention) * (4 / 3 if recompute else 1)


def rates(
    work: Work,
    assume: Assumptions,
    shape: ModelShape,
    *,
    trainer_gpus: float,
    engine_gpus: float,
    recompute: bool,
    passes: int,
) -> Rates:
    """Return the time and tokens of one step. `passes`: training passes over each batch (epochs)."""
    mean = min(agent_seconds(assume.agent_median_s, assume.agent_p95_s), work.agent_budget_s)
    rollout_s = mean + assume.grading_s + assume.set_up_s
    sampled = work.rollouts * min(assume.sampled_tokens, work.max_context_tokens)
    trained = work.rollouts * min(assume.context_tokens, work.max_context_tokens)
    by_agents = work.rollouts * rollout_s / min(work.max_concurrent, work.rollouts)
    if work.synchronous:
        longest = min(
            agent_seconds(assume.agent_median_s, assume.agent_p95_s, longest_of=work.rollouts), work.agent_budget_s
        )
        by_agents = max(by_agents, longest + assume.grading_s + assume.set_up_s)
    elif work.max_concurrent > work.rollouts:
        by_agents = work.rollouts * rollout_s / work.max_concurrent
    by_engine = sampled / (max(engine_gpus, 1.0) * assume.engine_tokens_per_s)
    sampling = max(by_agents, by_engine)
    flops = training_flops(
        shape, tokens=trained, context=min(assume.context_tokens, work.max_context_tokens), recompute=recompute
    )
    training = passes * flops / (max(trainer_gpus, 1.0) * assume.trainer_tflops * 1e12)
    limits = {"agents and sandboxes": by_agents, "the engine": by_engine, "the trainer": training}
    step = (sampling + training if work.synchronous else max(sampling, training)) + assume.push_s
    bound_by = "agents, trainer and push in turn" if work.synchronous else max(limits, key=lambda name: limits[name])
    return Rates(
        agent_mean_s=mean,
        sampled_tokens=sampled,
        trained_tokens=trained,
        most_tokens=work.rollouts * work.max_context_tokens,
        sandbox_hours=work.rollouts * rollout_s / 3600,
        most_sandbox_hours=work.rollouts * work.guard_s / 3600,
        sampling_s=sampling,
        training_s=training,
        push_s=assume.push_s,
        step_s=step,
        bound_by=bound_by,
    )
