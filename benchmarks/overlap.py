"""What overlapping sampling and training gains on the real stack, and whether it still learns as much.

    .venv/bin/python -m benchmarks.overlap --seeds 0 1 2 --json docs/results/overlap.json

The embedded default (real CLI, vLLM, Megatron-core) with agents that take as long as real ones do, scaled 30 to 1 (`delayed.py`), once
with `rollout.mode=sync` and once with `rollout.mode=async algo.max_staleness=2`. Bounds: 1.8 times as many rollouts an hour, and
`eval/p_right` within 0.05 of the synchronous run's, for the mean over the seeds. Exit code 1 if missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.runs import recorded_steps, run, statuses

SPEEDUP, P_RIGHT = 1.8, 0.05
COMMON = (
    "harness=codex",
    "harness._target_=benchmarks.delayed.DelayedCodex",
    "harness.time_budget_s=120",
    "rollout.max_concurrent=96",
    "tracking=none",
)
MODES = {
    "sync": ("rollout.mode=sync",),
    "async": ("rollout.mode=async", "algo.max_staleness=2"),
}


def one_run(mode: str, seed: int, folder: Path, overrides: list[str]) -> dict[str, Any]:
    """One run, and what it came to. The first step is left out of the rate: nothing overlaps with it."""
    times = run(folder, [*COMMON, *MODES[mode], f"seed={seed}", *overrides])
    steps = recorded_steps(folder)
    later = sum(statuses(steps[1:]).values())
    return {
        "mode": mode,
        "seed": seed,
        "rollouts_per_hour": round(later / (times[-1] - times[0]) * 3600.0),
        "p_right": [round(step["eval/p_right"], 3) for step in steps],
        "staleness_max": max(step.get("staleness/max", 0.0) for step in steps),
        "staleness_mean": round(sum(step.get("staleness/mean", 0.0) for step in steps) / len(steps), 3),
    }


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("overrides", nargs="*", help="further overrides of every run")
    given = parser.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(prefix="rl_agent_overlap_") as scratch:
        for seed in given.seeds:
            for mode, done in runs.items():
                done.append(one_run(mode, seed, Path(scratch) / f"{mode}-{seed}", given.overrides))
                print(json.dumps(done[-1]), flush=True)
    rate = {mode: sum(run["rollouts_per_hour"] for run in done) / len(done) for mode, done in runs.items()}
    right = {mode: sum(run["p_right"][-1] for run in done) / len(done) for mode, done in runs.items()}
    figures = {
        "speedup": round(rate["async"] / rate["sync"], 3),
        "p_right": {mode: round(value, 3) for mode, value in right.items()},
        "runs": [run for done in runs.values() for run in done],
    }
    print(json.dumps({name: figures[name] for name in ("speedup", "p_right")}))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if figures["speedup"] >= SPEEDUP and right["async"] >= right["sync"] - P_RIGHT else 1


if __name__ == "__main__":
    sys.exit(main())
