"""The older line of E2B's SDK, which some endpoints need, keeps the same contract. `scripts/setup.sh` puts it beside the pinned one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local import needs_root

ROOT = Path(__file__).parents[2]
SDK = Path(sys.prefix, "share", "e2b-2.20")
INSTALL = f"uv pip install --target {SDK} --no-deps e2b==2.20.3 dockerfile-parse==2.0.1"
LINE = "2.20."

pytestmark = [
    needs_root,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not SDK.is_dir(), reason=f"the second SDK is not installed (`{INSTALL}`)"),
]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SDK)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1700)


@pytest.mark.parametrize(
    "suite",
    [
        "tests/contract/test_sandbox_contract.py",
        pytest.param("tests/unit/sandboxes/test_e2b_faults.py", marks=pytest.mark.long),
        pytest.param("tests/unit/sandboxes/test_e2b_matrix.py", marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_the_older_line_keeps_the_contract(suite: str) -> None:
    version = run("-c", "import e2b, importlib.metadata as m; print(e2b.__file__, m.version('e2b'))")
    assert version.stdout.split()[0].startswith(str(SDK)), version.stderr
    assert version.stdout.split()[1].startswith(LINE)
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", suite, "-k", "e2b")
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
