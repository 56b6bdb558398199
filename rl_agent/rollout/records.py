"""Rollouts on disk: JSON lines for text, safetensors for arrays. No pickle, so other programs can read them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from rl_agent.adapters.record import SessionStats
from rl_agent.config.rollout import SaveRollouts
from rl_agent.errors import ConfigError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout.group import AbortReason, Group, Rollout
from rl_agent.run_folder import sync, write_atomic
from rl_agent.tasks.task import EvalCmdSpec, Task
from rl_agent.tokens.segment import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

ARRAYS = ("tokens", "loss_mask", "rollout_logprobs", "weight_versions")
_AS_THEY_ARE: Final = (
    "rollout_id",
    "group_id",
    "task_id",
    "attempt",
    "detail",
    "exit_code",
    "exit_reason",
    "sampled_tokens",
    "excluded",
    "forks",
    "seconds",
)
"""Fields of a rollout that JSON can hold unchanged."""


def save(folder: Path, step: int, groups: Sequence[Group], which: SaveRollouts) -> None:
    """Write `step_<n>.jsonl` (one rollout per line) and `step_<n>.safetensors` (`<rollout id>/<segment>/<array>`)."""
    chosen = [
        (group.task.problem_statement, rollout)
        for group in groups
        for rollout in group.rollouts
        if which is SaveRollouts.all or (which is SaveRollouts.failures and rollout.status != "solved")
    ]
    if chosen:
        _write(folder, _stem(step), chosen)


def save_one(folder: Path, rollout: Rollout) -> None:
    """Write one rollout to files of its own."""
    _write(folder, rollout.rollout_id, [("", rollout)])


def load_one(folder: Path, rollout_id: str) -> Rollout:
    """Read what `save_one` wrote. Raises ConfigError if it cannot be read."""
    (rollout,) = _read(folder, rollout_id)
    return rollout


def remove_one(folder: Path, rollout_id: str) -> None:
    """Undo `save_one`. The JSON file goes first, since it means that the arrays exist."""
    for suffix in (".jsonl", ".safetensors"):
        (folder / f"{rollout_id}{suffix}").unlink(missing_ok=True)


def remove_others(folder: Path, rollout_ids: Collection[str]) -> None:
    """Remove every file of `save_one` except those of these rollouts."""
    for path in folder.glob("*"):
        if path.stem not in rollout_ids:
            path.unlink()


def save_evaluation(folder: Path, version: int, rollouts: Sequence[tuple[Task, Rollout]]) -> None:
    """Write the evaluation rollouts of the weights of `version`: `eval_<n>.jsonl` and `eval_<n>.safetensors`."""
    _write(folder, f"eval_{version:05d}", [(task.problem_statement, rollout) for task, rollout in rollouts])


def recorded_steps(folder: Path) -> list[int]:
    """Return the recorded steps in order."""
    return sorted(int(path.stem.removeprefix("step_")) for path in folder.glob("step_*.jsonl"))


def load_rollouts(folder: Path, step: int) -> list[Rollout]:
    """Read the rollouts of a step, in data order. Raises ConfigError if a file is missing or unreadable."""
    return _read(folder, _stem(step))


def grouped(rollouts: Sequence[Rollout]) -> list[Group]:
    """Return recorded rollouts in their groups, in order.

    Their tasks have only an id, which is all that training needs.
    """
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group_id, []).append(rollout)
    return [
        Group(group_id=group_id, task=_known_by_id(members[0].task_id), rollouts=tuple(members))
        for group_id, members in groups.items()
    ]


def load_segments(folder: Path, step: int) -> dict[str, list[Segment]]:
    """Return the saved segments of each rollout by its id."""
    return {rollout.rollout_id: list(rollout.segments) for rollout in load_rollouts(folder, step)}


def _known_by_id(task_id: str) -> Task:
    never = EvalCmdSpec(eval_cmd="false")
    return Task(task_id=task_id, problem_statement="", image="", workdir="", grader=never)


def _stem(step: int) -> str:
    return f"step_{step:05d}"


def _write(folder: Path, stem: str, chosen: Sequence[tuple[str, Rollout]]) -> None:
    """Write (problem statement, rollout) pairs. The JSON file is written last, since it means that the arrays exist."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        f"{rollout.rollout_id}/{number}/{name}": np.ascontiguousarray(getattr(segment, name))
        for _, rollout in chosen
        for number, segment in enumerate(rollout.segments)
        for name in ARRAYS
    }
    target = folder / f"{stem}.safetensors"
    partial = target.with_suffix(".partial")
    save_file(arrays, partial)
    sync(partial)
    partial.replace(target)
    lines = (orjson.dumps(_record(statement, rollout)) + b"\n" for statement, rollout in chosen)
    write_atomic(folder / f"{stem}.jsonl", b"".join(lines))


def _read(folder: Path, stem: str) -> list[Rollout]:
    try:
        lines = (folder / f"{stem}.jsonl").read_bytes().splitlines()
        arrays = load_file(folder / f"{stem}.safetensors")
        return [_rollout(orjson.loads(line), arrays) for line in lines]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the recorded rollouts {folder / stem}.* cannot be read: {error!r}") from error


def _rollout(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Rollout:
    """Return the rollout of a record. Its patch was saved as text, so it is exact only if it is UTF-8."""
    status, stats = record["status"], record.get("stats")
    abort = AbortReason(status) if status in set(AbortReason) else None
    verdict = None
    if abort is None:
        verdict = Verdict(
            status=VerdictStatus(status),
            reward=record["reward"],
            tests_passed=record["tests_passed"],
            tests_failed=record["tests_failed"],
            log=record["grader_log"],
            metadata=record["grader_metadata"],
        )
    return Rollout(
        verdict=verdict,
        abort=abort,
        segments=tuple(
            Segment(
                kind=SegmentKind(kind), **{name: arrays[f"{record['rollout_id']}/{number}/{name}"] for name in ARRAYS}
            )
            for number, kind in enumerate(record["segments"])
        ),
        turns=tuple(record["turns"]),
        patch=record["patch"].encode(),
        stats=None if stats is None else SessionStats(**stats),
        greedy=record.get("greedy", False),
        sandbox=record.get("sandbox", {}),
        **{name: record[name] for name in _AS_THEY_ARE},
    )


def _record(statement: str, rollout: Rollout) -> dict[str, Any]:
    verdict = rollout.verdict
    return {
        **{name: getattr(rollout, name) for name in _AS_THEY_ARE},
        "problem_statement": statement,
        "status": rollout.status,
        "reward": rollout.reward,
        "turns": list(rollout.turns),
        "patch": rollout.patch.decode("utf-8", "backslashreplace"),
        "trained_tokens": rollout.trained_tokens,
        "segments": [str(segment.kind) for segment in rollout.segments],
        "greedy": rollout.greedy,
        "stats": None if rollout.stats is None else asdict(rollout.stats),
        "sandbox": dict(rollout.sandbox),
        "tests_passed": verdict.tests_passed if verdict else 0,
        "tests_failed": verdict.tests_failed if verdict else 0,
        "grader_log": verdict.log if verdict else "",
        "grader_metadata": dict(verdict.metadata) if verdict else {},
    }
