"""Named algorithms with the real agent, the real vLLM and the real trainer: two steps each."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.embedded.tiny import TinyPolicyConfig
from tests.e2e.command import Command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = ("tracking=none", "job.steps=2", "job.eval_every=0", "rollout.tasks_per_step=2", "algo.group_size=4")
OTHERS = ("dr_grpo", "dapo", "reinforce_plus_plus", "cispo", "sapo", "maxrl")
"""grpo is in test_train.py; grpo, gspo and rloo are in the sweep below."""


def metrics_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def train(output: Path, *overrides: str) -> list[dict[str, float]]:
    run = Command(output=output, overrides=(*SMALL, *overrides))
    done = run.run(timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    steps = metrics_of(output)
    assert [step["step"] for step in steps] == [1, 2]
    assert all(math.isfinite(value) for step in steps for value in step.values())
    return steps


@pytest.mark.long
def test_ppo_trains_a_policy_and_its_critic(tmp_path: Path) -> None:
    steps = train(tmp_path / "run", "algo=ppo", "rollout.tasks_per_step=3")
    rewarded = [any(step["reward/mean"] > 0 for step in steps[:end]) for end in range(1, len(steps) + 1)]
    assert rewarded[-1]
    # a critic begins at 0: as long as no rollout is solved it is right; from then on it leaves no group without advantage
    assert [step["train/critic_grad_norm"] > 0 for step in steps] == rewarded
    assert [step["train/skipped"] == 0 for step in steps] == rewarded
    assert all(step["train/logprob_diff_max"] < 1e-3 for step, some in zip(steps, rewarded, strict=True) if some)
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    assert list((tmp_path / "run" / "checkpoints").glob("*/**/critic/metadata.json"))


@pytest.mark.long  # in `make test`: test_offline_jobs.py
def test_job_sft_takes_two_steps(tmp_path: Path) -> None:
    run = Command(output=tmp_path / "run", overrides=("job=sft", "tracking=none", "job.steps=2", "job.eval_every=2"))
    done = run.run(timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS)
def test_a_named_algorithm_takes_two_steps(name: str, tmp_path: Path) -> None:
    steps = train(tmp_path / "run", f"algo={name}")
    needs_reference = name == "reinforce_plus_plus"
    assert all(("train/reference_kl" in step) == needs_reference for step in steps)


@pytest.mark.long
def test_a_policy_learns_from_a_teacher(tmp_path: Path) -> None:
    teacher = TinyPolicyConfig(style="codex").build().folder(tmp_path)
    steps = train(tmp_path / "run", "algo=opd", f"algo.loss.teacher={teacher}")
    assert all(step["train/skipped"] == 0 and "train/teacher_kl" in step for step in steps)


@pytest.mark.long
def test_remax_compares_with_a_greedy_rollout_that_never_trains(tmp_path: Path) -> None:
    steps = train(tmp_path / "run", "algo/advantage=remax")
    for step in steps:
        lines = (tmp_path / "run" / "rollouts" / f"step_{step['step']:05d}.jsonl").read_text().splitlines()
        groups: dict[str, list[dict[str, Any]]] = {}
        for record in map(json.loads, lines):
            groups.setdefault(record["group_id"], []).append(record)
        assert len(groups) == 2
        for group in groups.values():
            assert sorted(record["greedy"] for record in group) == [False, False, False, True]
        greedy = [record for group in groups.values() for record in group if record["greedy"]]
        assert step["tokens/excluded/greedy_baseline"] == sum(record["trained_tokens"] for record in greedy) > 0


@pytest.mark.long
def test_algorithms_can_be_swept(tmp_path: Path) -> None:
    sweep = Command(
        output=tmp_path / "unused",
        overrides=("-m", "algo=grpo,gspo,rloo", *SMALL, f"hydra.sweep.dir={tmp_path}/sweep"),
    )
    done = sweep.run(timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    for job in ("0", "1", "2"):
        assert [step["step"] for step in metrics_of(tmp_path / "sweep" / job)] == [1, 2]
