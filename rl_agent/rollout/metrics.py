"""Metrics of the rollouts of one step, under fixed names."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.sandboxes.meter import sandbox_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.rollout.group import Group, Rollout


def rollout_metrics(groups: Sequence[Group], version: int) -> dict[str, float]:
    """Return the metrics of the rollouts that train weights of `version`.

    Reward metrics are over rollouts with a reward, all other metrics over all rollouts.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    finished = [rollout for rollout in rollouts if rollout.segments]
    sampled = sum(rollout.sampled_tokens for rollout in rollouts)
    trained = sum(rollout.trained_tokens for rollout in rollouts if rollout.reward is not None and not rollout.greedy)
    excluded: Counter[str] = Counter()
    forks: Counter[str] = Counter()
    for rollout in rollouts:
        excluded.update(rollout.excluded)
        forks.update(rollout.forks)
        if rollout.reward is None and rollout.trained_tokens:
            excluded["no_reward"] += rollout.trained_tokens
        elif rollout.greedy and rollout.trained_tokens:
            excluded["greedy_baseline"] += rollout.trained_tokens
    metrics: dict[str, float] = {
        "tokens/sampled": sampled,
        "tokens/trained": trained,
        "tokens/trainable_share": trained / sampled if sampled else 0.0,
        "tokens/segments_per_rollout": _mean([len(rollout.segments) for rollout in finished]),
        "rollout/turns_mean": _mean([len(rollout.turns) for rollout in rollouts]),
        "rollout/agent_seconds_mean": _mean([r.seconds["agent"] for r in rollouts if "agent" in r.seconds]),
    }
    if rewards:
        metrics["reward/mean"] = _mean(rewards)
        metrics["reward/solved_rate"] = _mean(
            [rollout.status == "solved" for rollout in rollouts if rollout.reward is not None]
        )
    metrics |= {f"rollout/status/{status}": count for status, count in Counter(r.status for r in rollouts).items()}
    verdicts = [rollout.verdict for rollout in rollouts if rollout.verdict is not None]
    signals = Counter(name for verdict in verdicts for name in verdict.metadata.get("signals", ()))
    metrics |= {f"grader/signal/{name}": count for name, count in signals.items()}
    findings = Counter(v.metadata["control"]["finding"] for v in verdicts if "control" in v.metadata)
    metrics |= {f"grader/control/{finding}": count for finding, count in findings.items()}
    if dropped := sum("dropped_paths" in verdict.metadata for verdict in verdicts):
        metrics["grader/patches_with_dropped_paths"] = dropped
    metrics |= {f"tokens/excluded/{reason}": count for reason, count in excluded.items()}
    metrics |= {f"forks/{reason}": count for reason, count in forks.items()}
    metrics |= sandbox_metrics([rollout.sandbox for rollout in rollouts])
    return metrics | _pushes(rollouts, sampled) | _staleness(groups, version)


def _pushes(rollouts: Sequence[Rollout], sampled: int) -> dict[str, float]:
    """Return the effect of weight pushes during turns. The update modes `drain` and `keep` recompute nothing."""
    told = [rollout.stats for rollout in rollouts if rollout.stats is not None]
    mixed = sum(stats.mixed_version_tokens for stats in told)
    return {
        "tokens/mixed_version_share": mixed / sampled if sampled else 0.0,
        "tokens/recomputed": sum(stats.recomputed_tokens for stats in told),
    }


def _staleness(groups: Sequence[Group], version: int) -> dict[str, float]:
    parts = [
        version - segment.weight_versions[segment.loss_mask]
        for group in groups
        for rollout in group.rollouts
        for segment in rollout.segments
        if rollout.reward is not None
    ]
    staleness = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)
    if not len(staleness):
        return {}
    return {"staleness/mean": float(staleness.mean()), "staleness/max": float(staleness.max())}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
