"""The whole loop with each real CLI, real vLLM, the real sandbox and real Megatron-core, to an optimizer step and further."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from rl_agent.embedded.toy_source import ToyDataConfig
from rl_agent.tokens.segment import SegmentKind
from tests.e2e.command import Command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

DEFAULT = ["sub", "add", "max", "ge", "lt", "even", "last", "up"]
ONE_STEP = ("job.steps=1", "rollout.tasks_per_step=6", "algo.group_size=4")
"""A step of 24 rollouts. The chance that no group is mixed, so that nothing can be learned, is one in some thousands."""
WORD = {"claude_code": "Bash", "codex": "exec_command"}


def command(output: Path, *overrides: str) -> Command:
    return Command(output=output, overrides=("tracking.console=false", *overrides))


@pytest.mark.parametrize("harness", ["claude_code", "codex"])
def test_a_real_agent_is_trained_on_exactly_the_tokens_that_it_sampled(harness: str, tmp_path: Path) -> None:
    run = command(tmp_path / "run", f"harness={harness}", *ONE_STEP)
    done = run.run(timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    (metrics,) = run.metrics()
    assert metrics["tokens/trainable_share"] == 1.0
    assert metrics["tokens/segments_per_rollout"] == 1.0
    assert metrics["tokens/sampled"] == metrics["tokens/trained"] > 0
    assert metrics["train/skipped"] == 0.0
    assert metrics["train/grad_norm"] > 0.0
    assert metrics["train/logprob_diff_max"] < 1e-3
    assert metrics["staleness/max"] == 0.0
    assert 0.0 < metrics["reward/mean"] < 1.0
    assert sum(value for name, value in metrics.items() if name.startswith("rollout/status/")) == 24

    from rl_agent.rollout.records import load_segments

    saved = [json.loads(line) for line in (run.output / "rollouts" / "step_00001.jsonl").read_text().splitlines()]
    assert any(WORD[harness] in turn for record in saved for turn in record["turns"])
    segments = load_segments(run.output / "rollouts", 1)
    assert {segment.kind for parts in segments.values() for segment in parts} == {SegmentKind.MAIN}
    assert (run.output / "model" / "model.safetensors").is_file()
    assert list((run.output / "wandb").glob("offline-run-*"))
    assert "api_key" not in (run.output / "config.yaml").read_text().lower()


@pytest.mark.long
def test_a_replayed_run_has_the_metrics_of_the_run_that_was_recorded(tmp_path: Path) -> None:
    run = command(tmp_path / "run", "harness=claude_code", *ONE_STEP)
    done = run.run(timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    again = command(tmp_path / "again", "harness=claude_code", *ONE_STEP, "tracking=none", f"data.replay={run.output}")
    done = again.run(timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    (metrics,), (replayed,) = run.metrics(), again.metrics()
    assert metrics["train/grad_norm"] > 0.0
    kept = ("train/", "reward/", "tokens/trained", "staleness/", "eval/")
    names = [name for name in metrics if name.startswith(kept)]
    expected = {name: metrics[name] for name in names}
    assert {name: replayed[name] for name in names} == pytest.approx(expected, rel=1e-5)


@pytest.mark.long  # `make test` kills and resumes a run in test_killed.py
def test_a_killed_run_leaves_nothing_and_resumes_with_the_same_data_order(tmp_path: Path) -> None:
    run = command(tmp_path / "run", "debug=fast", "job.steps=3", "rollout.tasks_per_step=2")
    run.start()
    assert run.process is not None
    deadline = time.monotonic() + 400
    saved = run.output / "checkpoints" / "step_00001" / "state.json"
    while not saved.is_file() and time.monotonic() < deadline and run.process.poll() is None:
        time.sleep(0.1)
    run.process.send_signal(signal.SIGKILL)
    run.finish(timeout=30)
    run.assert_nothing_left()
    before = run.metrics()
    assert len(before) == 1

    resumed = Command(
        output=run.output,
        overrides=(
            "tracking.console=false",
            "debug=fast",
            "job.steps=3",
            "rollout.tasks_per_step=2",
            f"resume={run.output}",
        ),
    )
    done = resumed.run(timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    after = run.metrics()
    assert [record["step"] for record in after] == [1, 2, 3]
    assert after[:1] == before
    assert all(record["staleness/max"] == 0.0 for record in after)
    source = ToyDataConfig(kinds=DEFAULT, image="host").build().tasks(0)
    for step in range(1, 4):
        lines = (run.output / "rollouts" / f"step_{step:05d}.jsonl").read_text().splitlines()
        seen = list(dict.fromkeys(json.loads(line)["task_id"] for line in lines))
        assert seen == [next(source).task_id for _ in range(2)]


@pytest.mark.long
def test_a_sweep_runs_one_job_after_the_other_and_keeps_each_ones_staleness_bound(tmp_path: Path) -> None:
    sweep = Command(
        output=tmp_path / "unused",
        overrides=(
            "-m",
            "algo.max_staleness=0,1",
            "engine=demonstrator",
            "engine.delay_s=0.2",
            "debug=fast",
            "job.steps=3",
            "tracking=none",
            f"hydra.sweep.dir={tmp_path}/sweep",
        ),
    )
    done = sweep.run(timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    for job, bound in (("0", 0.0), ("1", 1.0)):
        lines = (tmp_path / "sweep" / job / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line) for line in lines]
        assert [step["step"] for step in steps] == [1, 2, 3]
        assert all(step["reward/mean"] == 1.0 for step in steps)  # the demonstrator always finds the right fix
        assert all(
            step["train/skipped"] == 1.0 for step in steps
        )  # so there is nothing to compare: nothing was changed
        assert steps[0]["staleness/max"] == 0.0
        assert max(step["staleness/max"] for step in steps) == bound  # with a bound of 1, sampling overlaps training
