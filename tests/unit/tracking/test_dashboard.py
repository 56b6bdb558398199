"""The dashboard has the form that wandb takes, and names only metrics that are logged."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import rl_agent
from rl_agent.graders.base import VerdictStatus
from rl_agent.rollout.group import AbortReason
from rl_agent.tracking.dashboard import SECTIONS, main
from rl_agent.twins.mixed import Finding

ROOMS = ("rollout", "jobs", "trainer", "algo", "sandboxes", "cluster")
"""Where metrics are made; tracking only shows them."""


def logged() -> tuple[set[str], set[str]]:
    """All string constants of these rooms, and the patterns of their formatted strings."""
    constants, patterns = {str(status) for kind in (VerdictStatus, AbortReason, Finding) for status in kind}, set()
    for room in ROOMS:
        for path in (Path(rl_agent.__file__).parent / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    constants.add(node.value)
                elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                    parts = [re.escape(v.value) if isinstance(v, ast.Constant) else "(.+)" for v in node.values]
                    patterns.add("".join(map(str, parts)))
    return constants, {pattern for pattern in patterns if "/" in pattern}


def is_logged(metric: str, constants: set[str], patterns: set[str]) -> bool:
    if metric in constants:
        return True
    matches = (re.fullmatch(pattern, metric) for pattern in patterns)
    return any(match is not None and all(part in constants for part in match.groups()) for match in matches)


def test_every_metric_of_the_dashboard_is_logged() -> None:
    constants, patterns = logged()
    shown = [metric for panels in SECTIONS.values() for metrics in panels.values() for metric in metrics]
    assert len(shown) == len(set(shown)) > 20
    assert [metric for metric in shown if not is_logged(metric, constants, patterns)] == []
    assert not is_logged("rollout/status/exploded", constants, patterns)  # the test can fail
    assert not is_logged("reward/median", constants, patterns)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:wandb_workspaces")
def test_the_dashboard_is_in_wandbs_form(capsys: pytest.CaptureFixture[str]) -> None:
    from wandb_workspaces.workspaces.internal import View

    assert main(["--project", "mine", "--entity", "me"]) == 0
    text = capsys.readouterr().out
    view = View.model_validate_json(text)
    assert (view.project, view.entity) == ("mine", "me")
    sections = json.loads(text)["spec"]["section"]["panelBankConfig"]["sections"]
    assert [section["name"] for section in sections] == list(SECTIONS)
    metrics = {metric for section in sections for panel in section["panels"] for metric in panel["config"]["metrics"]}
    assert metrics == {metric for panels in SECTIONS.values() for each in panels.values() for metric in each}


def test_saving_without_a_key_names_the_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert main(["--save"]) == 1
    assert "WANDB_API_KEY" in capsys.readouterr().err
