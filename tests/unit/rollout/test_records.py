"""Rollouts are readable from disk exactly as they were; batches leave out what has no reward."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest

from rl_agent.adapters.record import SessionStats
from rl_agent.config.rollout import SaveRollouts
from rl_agent.errors import ConfigError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout import records
from rl_agent.rollout.batch import build_batch
from rl_agent.rollout.group import AbortReason, Group, Rollout
from rl_agent.rollout.metrics import rollout_metrics
from rl_agent.tasks.task import EvalCmdSpec, Task
from rl_agent.tokens.segment import Segment, SegmentKind

if TYPE_CHECKING:
    from pathlib import Path

TASK = Task(task_id="t", problem_statement="Fix it.", image="host", workdir="/w", grader=EvalCmdSpec(eval_cmd="true"))


def segment(first: int, version: int = 3) -> Segment:
    mask = np.array([False, True, True])
    return Segment(
        kind=SegmentKind.MAIN,
        tokens=np.array([first, first + 1, first + 2], dtype=np.int32),
        loss_mask=mask,
        rollout_logprobs=np.array([0, -0.5, -1.25], dtype=np.float32),
        weight_versions=np.where(mask, version, -1).astype(np.int32),
    )


def rollout(name: str, reward: float | None, *segments: Segment) -> Rollout:
    if reward is None:
        verdict = Verdict(status=VerdictStatus.INFRA_ERROR, reward=None)
    else:
        verdict = Verdict(status=VerdictStatus.SOLVED if reward else VerdictStatus.FAILED, reward=reward)
    return Rollout(
        rollout_id=name,
        group_id="g",
        task_id="t",
        attempt=0,
        verdict=verdict,
        segments=segments,
        sampled_tokens=2 * len(segments),
        turns=("a", "b"),
        patch=b"\xff\x00",
        seconds={"agent": 2.0},
    )


def group(*rollouts: Rollout) -> Group:
    return Group(group_id="g", task=TASK, rollouts=rollouts)


def test_segments_come_back_bit_for_bit(tmp_path: Path) -> None:
    ours = [rollout("r0", 1.0, segment(5), segment(50)), rollout("r1", 0.0, segment(9))]
    records.save(tmp_path, 4, [group(*ours)], SaveRollouts.all)
    loaded = records.load_segments(tmp_path, 4)
    assert list(loaded) == ["r0", "r1"]
    for name in records.ARRAYS:
        for mine, theirs in zip(ours[0].segments, loaded["r0"], strict=True):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
    line = orjson.loads((tmp_path / "step_00004.jsonl").read_bytes().splitlines()[0])
    assert line["status"] == "solved"
    assert line["segments"] == ["main", "main"]


def test_a_rollout_by_itself_comes_back_as_it_was(tmp_path: Path) -> None:
    stats = SessionStats(requests=3, tool_calls=2, generation_seconds=0.5)
    ours = [replace(rollout("r0", 1.0, segment(5)), stats=stats, patch="ü".encode(), greedy=True), rollout("r1", 0.0)]
    for mine in ours:
        records.save_one(tmp_path, mine)
    for mine in ours:
        theirs = records.load_one(tmp_path, mine.rollout_id)
        np.testing.assert_equal([asdict(s) for s in mine.segments], [asdict(s) for s in theirs.segments])
        patch = mine.patch if mine is ours[0] else theirs.patch  # the other one is no UTF-8
        assert replace(mine, segments=(), patch=patch) == replace(theirs, segments=())
    records.remove_others(tmp_path, {"r1"})
    assert {path.stem for path in tmp_path.iterdir()} == {"r1"}
    records.remove_one(tmp_path, "r1")
    records.remove_one(tmp_path, "r1")
    assert not list(tmp_path.iterdir())


def test_an_abort_comes_back_as_an_abort(tmp_path: Path) -> None:
    lost = Rollout(rollout_id="r", group_id="g", task_id="t", attempt=2, verdict=None, abort=AbortReason.SANDBOX_ERROR)
    records.save(tmp_path, 1, [group(lost)], SaveRollouts.all)
    assert records.load_rollouts(tmp_path, 1) == [lost]


@pytest.mark.parametrize("content", [None, b"{", b'{"rollout_id": "r0"}', b"[]"])
def test_records_that_are_missing_or_torn_are_named(tmp_path: Path, content: bytes | None) -> None:
    records.save(tmp_path, 1, [group(rollout("r0", 1.0, segment(5)))], SaveRollouts.all)
    if content is None:
        (tmp_path / "step_00001.safetensors").unlink()
    else:
        (tmp_path / "step_00001.jsonl").write_bytes(content)
    with pytest.raises(ConfigError, match=r"recorded rollouts .*step_00001\.\* cannot be read"):
        records.load_rollouts(tmp_path, 1)


@pytest.mark.parametrize(("which", "names"), [(SaveRollouts.failures, ["r1"]), (SaveRollouts.none, [])])
def test_only_the_wanted_rollouts_are_saved(tmp_path: Path, which: SaveRollouts, names: list[str]) -> None:
    records.save(tmp_path, 1, [group(rollout("r0", 1.0, segment(5)), rollout("r1", 0.0, segment(9)))], which)
    assert (list(records.load_segments(tmp_path, 1)) if names else []) == names
    assert (tmp_path / "step_00001.jsonl").exists() == bool(names)


def test_a_rollout_without_a_reward_never_enters_a_batch() -> None:
    batch = build_batch(
        [
            group(
                rollout("r0", 1.0, segment(5), segment(7)),
                rollout("r1", None, segment(90)),
                rollout("r2", 0.0, segment(1)),
            )
        ]
    )
    assert batch is not None
    assert batch.rewards.tolist() == [1.0, 0.0]
    assert batch.segment_rollout.tolist() == [0, 0, 1]
    assert 90 not in batch.tokens


def test_there_is_no_batch_when_infrastructure_broke_everything() -> None:
    assert build_batch([group(rollout("r0", None, segment(5)))]) is None


def test_metrics_count_every_sampled_token_once() -> None:
    aborted = Rollout(
        rollout_id="r3", group_id="g", task_id="t", attempt=0, verdict=None, abort=AbortReason.SANDBOX_ERROR
    )
    metrics = rollout_metrics(
        [
            group(
                rollout("r0", 1.0, segment(5)), rollout("r1", 0.0, segment(9)), rollout("r2", None, segment(1)), aborted
            )
        ],
        version=4,
    )
    assert metrics["reward/mean"] == metrics["reward/solved_rate"] == 0.5
    assert metrics["tokens/sampled"] == metrics["tokens/trained"] + metrics["tokens/excluded/no_reward"] == 6
    assert metrics["rollout/status/sandbox_error"] == metrics["rollout/status/infra_error"] == 1
    assert metrics["staleness/mean"] == metrics["staleness/max"] == 1
    assert metrics["tokens/segments_per_rollout"] == 1


def test_arrays_are_on_the_disk_before_the_lines_that_say_so(tmp_path: Path, disk: list[str]) -> None:
    records.save_one(tmp_path, rollout("r1", 1.0, segment(1)))
    assert disk == ["sync r1.partial", "r1.safetensors", "sync r1.jsonl.partial", "r1.jsonl"]
