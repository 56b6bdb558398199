"""Honest solutions of ordinary kinds are rewarded by every grader that applies, and tests can be made wrong for them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from rl_agent.graders.auto import AutoConfig
from tests.honest.case import task_of
from tests.honest.packages import download_packages, unpack_packages
from tests.honest.table import CASES
from tests.local import local_provider, needs_root

if TYPE_CHECKING:
    from pathlib import Path

    from tests.honest.case import Honest

pytestmark = [needs_root, pytest.mark.slow]


def marks(case: Honest, kind: str) -> list[pytest.MarkDecorator]:
    missing = bool(case.program) and shutil.which(case.program) is None
    skip = pytest.mark.skipif(missing, reason=f"{case.program} is not installed")
    return [skip] if kind in case.sample else [skip, pytest.mark.long]


TRIALS = [
    pytest.param(case, kind, id=f"{case.name}-{kind}", marks=marks(case, kind)) for case in CASES for kind in case.kinds
]


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for packages that the sandboxes see."""
    folder = tmp_path_factory.mktemp("packages")
    download_packages(folder)
    for path in (folder, *folder.parents):
        if path.is_relative_to("/tmp") and path.name != "tmp":
            path.chmod(0o755)
    return folder


@pytest.mark.parametrize(("case", "kind"), TRIALS)
async def test_honest_work_is_rewarded(tmp_path: Path, tools: Path, case: Honest, kind: str) -> None:
    unpack_packages(tools, case.needed)
    provider = local_provider(tmp_path / "state", visible=[str(tools)])
    options = {"timeout_s": 300, "retries": 0, "twins_dir": str(tmp_path / "twins"), **(case.changes or {})}
    verdict = await AutoConfig(**options).build().grade(task_of(case, kind, tools), case.patch, provider)
    assert (verdict.status, verdict.reward) == ("solved", 1.0), (verdict.metadata, verdict.log)
    finding = verdict.metadata["control"]["finding"]
    assert finding == ("no_control" if kind in case.no_control else "right"), verdict.metadata
