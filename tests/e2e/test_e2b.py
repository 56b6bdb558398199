"""`python -m rl_agent sandbox=e2b` against the gateway as a user starts it: only the key and the URLs are added."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.command import ROOT, Command
from tests.local import GATEWAY_KEY, needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [needs_root, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(500)]


@pytest.fixture
def gateway_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("E2B_API_KEY", GATEWAY_KEY)
    command = [sys.executable, "-m", "rl_agent.sandboxes.gateway", "gateway.port=0", "gateway.expose=['127.0.0.1:*']"]
    options = [f"gateway.assets_dir={tmp_path}/assets", f"sandbox.state_dir={tmp_path}/gateway"]
    with subprocess.Popen([*command, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("gateway: http://127.0.0.1:")
            yield line.split()[1]
        finally:
            process.terminate()
            assert process.wait(60) == 0
    left = [path.name for path in (tmp_path / "gateway").iterdir()]
    assert left == [], "sandboxes left behind"


@pytest.mark.parametrize("harness", ["codex", pytest.param("claude_code", marks=pytest.mark.long)])
def test_a_run_trains_through_the_gateway_with_only_the_urls_added(
    harness: str, gateway_url: str, tmp_path: Path
) -> None:
    run = Command(
        output=tmp_path / "run",
        overrides=(
            f"harness={harness}",
            "sandbox=e2b",
            f"sandbox.api_url={gateway_url}",
            f"sandbox.sandbox_url={gateway_url}",
            f"sandbox.state_dir={tmp_path}/e2b",
            "engine=demonstrator",
            "debug=fast",
            "harness.time_budget_s=180",  # where the machine is busy, 60 s are not enough for the first start
            "job.steps=2",
            "tracking=none",
        ),
    )
    done = run.run(timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(metrics["reward/mean"] == 1.0 for metrics in run.metrics())
    assert run.metrics()
    assert list((tmp_path / "e2b" / "e2b" / "live").iterdir()) == [], "sandboxes on record as running"


def test_without_a_key_there_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    overrides = (
        "sandbox=e2b",
        "sandbox.api_url='http://127.0.0.1:9'",
        "engine=demonstrator",
        "debug=fast",
        "tracking=none",
    )
    done = Command(output=tmp_path / "run", overrides=overrides).run(timeout=120)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "E2B_API_KEY" in errors[0]
    assert "Traceback" not in done.stderr
