"""Rollouts as rows of a table, with shortened texts and as many different statuses as possible."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.rollout.group import Group, Rollout

LONGEST_TEXT: Final = 2000
"""Maximum characters of a text. With it, 16 rows per step and 1000 steps stay below 100 MB."""


def rollout_rows(groups: Sequence[Group], limit: int) -> list[dict[str, Any]]:
    """Return at most `limit` rollouts of a step: one of each status in turn, in data order within a status."""
    by_status: dict[str, list[tuple[str, Rollout]]] = {}
    for group in groups:
        for rollout in group.rollouts:
            by_status.setdefault(rollout.status, []).append((group.task.problem_statement, rollout))
    turns = itertools.zip_longest(*(by_status[status] for status in sorted(by_status)))
    found = [pair for pairs in turns for pair in pairs if pair is not None]
    return [_row(statement, rollout) for statement, rollout in found[:limit]]


def cut(text: str) -> str:
    """Return the text without its middle if it is long. The start shows the attempt, the end its outcome."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"


def _row(statement: str, rollout: Rollout) -> dict[str, Any]:
    return {
        "rollout": rollout.rollout_id,
        "task": rollout.task_id,
        "status": rollout.status,
        "reward": rollout.reward,
        "turns": len(rollout.turns),
        "sampled_tokens": rollout.sampled_tokens,
        "segments": len(rollout.segments),
        "seconds": rollout.seconds.get("total"),
        "problem": cut(statement),
        "transcript": cut("\n\n".join(rollout.turns)),
        "patch": cut(rollout.patch.decode("utf-8", "backslashreplace")),
        "detail": cut(rollout.detail),
    }
