"""Rollouts on disk: JSON lines for what a person reads, safetensors for arrays. Readable without this code; no pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from safetensors.numpy import load_file, save_file

from rl_agent.config.rollout import SaveRollouts
from rl_agent.run_folder import write_atomic
from rl_agent.tokens.segment import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.rollout.group import Group, Rollout

ARRAYS = ("tokens", "loss_mask", "rollout_logprobs", "weight_versions")


def save(folder: Path, step: int, groups: Sequence[Group], which: SaveRollouts) -> None:
    """Write `step_<n>.jsonl` (a rollout a line) and `step_<n>.safetensors` (`<rollout id>/<segment>/<array>`)."""
    chosen = [
        (group, rollout)
        for group in groups
        for rollout in group.rollouts
        if which is SaveRollouts.all or (which is SaveRollouts.failures and rollout.status != "solved")
    ]
    if not chosen:
        return
    folder.mkdir(parents=True, exist_ok=True)
    lines = b"".join(orjson.dumps(_record(group, rollout)) + b"\n" for group, rollout in chosen)
    arrays = {
        f"{rollout.rollout_id}/{number}/{name}": np.ascontiguousarray(getattr(segment, name))
        for _, rollout in chosen
        for number, segment in enumerate(rollout.segments)
        for name in ARRAYS
    }
    target = folder / f"step_{step:05d}.safetensors"
    partial = target.with_suffix(".partial")
    save_file(arrays, partial)
    partial.replace(target)
    write_atomic(folder / f"step_{step:05d}.jsonl", lines)


def load_segments(folder: Path, step: int) -> dict[str, list[Segment]]:
    """Rollout id -> its segments, as saved."""
    records = [orjson.loads(line) for line in (folder / f"step_{step:05d}.jsonl").read_bytes().splitlines()]
    arrays = load_file(folder / f"step_{step:05d}.safetensors")
    return {
        record["rollout_id"]: [
            Segment(
                kind=SegmentKind(kind), **{name: arrays[f"{record['rollout_id']}/{number}/{name}"] for name in ARRAYS}
            )
            for number, kind in enumerate(record["segments"])
        ]
        for record in records
    }


def _record(group: Group, rollout: Rollout) -> dict[str, Any]:
    verdict = rollout.verdict
    return {
        "rollout_id": rollout.rollout_id,
        "group_id": rollout.group_id,
        "task_id": rollout.task_id,
        "attempt": rollout.attempt,
        "problem_statement": group.task.problem_statement,
        "status": rollout.status,
        "reward": rollout.reward,
        "detail": rollout.detail,
        "turns": list(rollout.turns),
        "patch": rollout.patch.decode("utf-8", "backslashreplace"),
        "exit_code": rollout.exit_code,
        "exit_reason": rollout.exit_reason,
        "sampled_tokens": rollout.sampled_tokens,
        "trained_tokens": rollout.trained_tokens,
        "excluded": dict(rollout.excluded),
        "forks": dict(rollout.forks),
        "segments": [str(segment.kind) for segment in rollout.segments],
        "seconds": dict(rollout.seconds),
        "tests_passed": verdict.tests_passed if verdict else 0,
        "tests_failed": verdict.tests_failed if verdict else 0,
        "grader_log": verdict.log if verdict else "",
        "grader_metadata": dict(verdict.metadata) if verdict else {},
    }
