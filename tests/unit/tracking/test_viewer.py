"""The viewer shows what is recorded, what trained, and never obeys what a model wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rl_agent.embedded.tiny import WARM_STARTS
from rl_agent.rollout.records import load_rollouts
from rl_agent.tracking.viewer import main, visible

RECORDED = Path(__file__).parents[2] / "data" / "recorded_rollouts"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(RECORDED, tmp_path / "rollouts")
    return tmp_path


def test_all_rollouts_are_listed_or_those_of_a_status(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rollouts = [
        one
        for path in (run / "rollouts").glob("*.jsonl")
        for one in load_rollouts(run / "rollouts", int(path.stem[5:]))
    ]
    assert main([str(run)]) == 0
    shown = capsys.readouterr().out
    assert all(one.rollout_id in shown for one in rollouts)
    assert main([str(run), "--status", "solved"]) == 0
    shown = capsys.readouterr().out
    assert all((one.rollout_id in shown) == (one.status == "solved") for one in rollouts)


def test_a_rollout_is_shown_with_what_it_was_trained_on(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = min(int(path.stem[5:]) for path in (run / "rollouts").glob("*.jsonl"))
    one = next(rollout for rollout in load_rollouts(run / "rollouts", step) if rollout.status == "solved")
    assert main([str(run), one.rollout_id, "--model", str(WARM_STARTS / "claude_code")]) == 0
    shown = capsys.readouterr().out
    assert f"rollout {one.rollout_id} of step {step}" in shown
    assert "status: solved" in shown
    assert "--- turn 1" in shown
    assert visible(one.turns[0]).splitlines()[0] in shown
    assert "diff --git" in shown
    assert shown.count("\u27e6") == len(one.turns)  # one sampled span a turn
    assert "<|im_start|>user" in shown


def test_control_characters_are_shown_and_not_obeyed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next((run / "rollouts").glob("*.jsonl"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["turns"] = ["\x1b]0;owned\x07 [bold]markup[/bold] \u202egnp"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main([str(run), lines[0]["rollout_id"]]) == 0
    shown = capsys.readouterr().out
    assert "\\x1b]0;owned\\x07 [bold]markup[/bold] \\u202egnp" in shown
    assert "\x1b" not in shown


def test_what_is_not_there_is_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere")]) == 1
    assert "no recorded rollouts found" in capsys.readouterr().err
    assert main([str(run), "99999"]) == 1
    assert "0 rollouts start with 99999" in capsys.readouterr().err
    assert main([str(run), "0"]) == 1
    assert "rollouts start with 0" in capsys.readouterr().err
    one = json.loads(next((run / "rollouts").glob("*.jsonl")).read_text().splitlines()[0])["rollout_id"]
    assert main([str(run), one, "--model", str(tmp_path)]) == 1
    assert "tokenizer.json not found" in capsys.readouterr().err
