"""Dashboard of the project in wandb: `python -m rl_agent.tracking.dashboard --project rl_agent [--save]`.

Without `--save`, it prints the dashboard as JSON in wandb's workspace format, and needs no network. With `--save`, it
saves the dashboard as a view of the project, which needs WANDB_API_KEY. Needs the extra `dashboard`.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from rl_agent.errors import ConfigError, RlAgentError
from rl_agent.secrets import require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECTIONS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "Does it learn?": {
        "reward": ("reward/mean", "reward/solved_rate"),
        "held-out tasks: p(right)": ("eval/p_right",),
        "mixed runs": ("grader/control/right", "grader/control/tampered", "grader/control/unsteady"),
        "tasks never and always solved": ("data/tasks_never_solved", "data/tasks_always_solved"),
        "outcomes": (
            "rollout/status/solved",
            "rollout/status/failed",
            "rollout/status/empty_diff",
            "rollout/status/timeout",
        ),
    },
    "Is it exact?": {
        "trainer and sampler: largest difference": ("train/logprob_diff_max", "train/logprob_diff_mean"),
        "trained share of sampled tokens": ("tokens/trainable_share",),
        "staleness": ("staleness/mean", "staleness/max"),
        "segments per rollout": ("tokens/segments_per_rollout",),
    },
    "Is the step healthy?": {
        "loss": ("train/loss",),
        "gradient norm": ("train/grad_norm",),
        "entropy": ("train/entropy",),
        "clip fraction": ("train/clip_fraction",),
        "learning rate": ("train/lr",),
        "steps without signal": ("train/skipped",),
    },
    "Where does the time go?": {
        "seconds per step": ("time/rollout", "time/train", "time/push"),
        "tokens per second": ("tokens/per_second",),
        "turns and seconds per agent run": ("rollout/turns_mean", "rollout/agent_seconds_mean"),
        "tokens": ("tokens/sampled", "tokens/trained"),
    },
    "What broke?": {
        "rollouts without a verdict": (
            "rollout/status/infra_error",
            "rollout/status/sandbox_error",
            "rollout/status/engine_error",
            "rollout/status/worker_lost",
            "rollout/status/setup_error",
            "rollout/status/wall_clock_timeout",
        ),
        "tampered": ("rollout/status/tampered",),
        "tasks in quarantine": ("data/quarantined",),
    },
}
"""Section -> panel -> metrics. A test checks that every metric is logged."""


def workspace(entity: str, project: str, name: str) -> Any:
    """Return the dashboard as a wandb object. Raises ConfigError without the extra `dashboard`."""
    try:
        from wandb_workspaces.reports.v2 import LinePlot  # noqa: PLC0415 (optional)
        from wandb_workspaces.workspaces import Section, Workspace  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"the dashboard needs wandb-workspaces: {error}. Install the extra `dashboard`.") from error
    sections = [
        Section(
            name=title,
            panels=[LinePlot(title=panel, x="Step", y=list(metrics)) for panel, metrics in panels.items()],
            is_open=True,
        )
        for title, panels in SECTIONS.items()
    ]
    return Workspace(entity=entity, project=project, name=name, sections=sections)


def as_json(view: Any) -> str:
    """Return the dashboard as JSON in wandb's format."""
    # wandb has no public method for an unsaved view
    plain: str = json.dumps(json.loads(view._to_model().model_dump_json(by_alias=True)), indent=2)
    return plain


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rl_agent.tracking.dashboard", description="Build the wandb dashboard."
    )
    parser.add_argument("--project", default="rl_agent", help="tracking.project of the runs")
    parser.add_argument("--entity", default="", help="tracking.entity of the runs")
    parser.add_argument("--name", default="rl_agent", help="name of the saved view")
    parser.add_argument("--save", action="store_true", help="save the view in wandb (needs WANDB_API_KEY)")
    given = parser.parse_args(arguments)
    try:
        view = workspace(given.entity, given.project, given.name)
        if given.save:
            require("WANDB_API_KEY", "--save")
            sys.stdout.write(f"{view.save().url}\n")
        else:
            sys.stdout.write(as_json(view) + "\n")
    except RlAgentError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
