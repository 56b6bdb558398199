"""Does the embedded default learn? Runs it for each harness and seed, one after the other, and states the figures.

    .venv/bin/python -m benchmarks.learning --harness claude_code codex --seeds 0 1 2 --json docs/results/learning.json

Bounds: the exact probability of the right trajectory on the held-out set rises by at least 0.25, and the mean reward of the
last three steps is at least 0.15 above that of the first three. Exit code 1 if a run misses one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.runs import recorded_steps, run, statuses

P_RIGHT_RISE = 0.25
REWARD_RISE = 0.15


def one_run(harness: str, seed: int, folder: Path, overrides: list[str]) -> dict[str, Any]:
    """One run of the default, and its curve."""
    started = time.monotonic()
    run(folder, [f"harness={harness}", f"seed={seed}", *overrides])
    steps = recorded_steps(folder)
    summary = json.loads((folder / "summary.json").read_text())
    rewards = [step["reward/mean"] for step in steps]
    p_right = [summary["p_right_before"], *(step["eval/p_right"] for step in steps)]
    return {
        "harness": harness,
        "seed": seed,
        "seconds": round(time.monotonic() - started, 1),
        "reward": [round(value, 3) for value in rewards],
        "p_right": [round(value, 3) for value in p_right],
        "reward_rise": round(sum(rewards[-3:]) / 3 - sum(rewards[:3]) / 3, 3),
        "p_right_rise": round(p_right[-1] - p_right[0], 3),
        "trainable_share_min": min(step["tokens/trainable_share"] for step in steps),
        "segments_per_rollout_max": max(step["tokens/segments_per_rollout"] for step in steps),
        "logprob_diff_max": max(step["train/logprob_diff_max"] for step in steps if "train/logprob_diff_max" in step),
        "rollout_seconds_mean": round(sum(step["time/rollout"] for step in steps) / len(steps), 1),
        "statuses": statuses(steps),
    }


def holds(figures: dict[str, Any]) -> bool:
    """Whether a run keeps all bounds."""
    return (
        figures["p_right_rise"] >= P_RIGHT_RISE
        and figures["reward_rise"] >= REWARD_RISE
        and figures["trainable_share_min"] == 1.0
        and figures["segments_per_rollout_max"] == 1.0
        and figures["logprob_diff_max"] < 1e-3
    )


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--harness", nargs="+", default=["claude_code", "codex"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("overrides", nargs="*", help="further overrides of every run")
    given = parser.parse_args()
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rl_agent_learning_") as scratch:
        for harness in given.harness:
            for seed in given.seeds:
                figures = one_run(harness, seed, Path(scratch) / f"{harness}-{seed}", given.overrides)
                runs.append({**figures, "holds": holds(figures)})
                print(json.dumps(runs[-1]), flush=True)
                if given.json:
                    given.json.parent.mkdir(parents=True, exist_ok=True)
                    given.json.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    sys.exit(0 if all(figures["holds"] for figures in runs) else 1)


if __name__ == "__main__":
    main()
