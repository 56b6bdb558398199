"""What a submission writes where the grader reads: it costs the submission its reward, and the grader neither memory nor an error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.config.grader import GraderConfig
from rl_agent.config.load import build
from rl_agent.graders.confirm import CHANNEL
from rl_agent.tasks.task import EvalCmdSpec, F2pSpec
from tests.local import calc_task, local_provider, needs_root
from tests.patches import patch_of

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.graders.base import Verdict
    from rl_agent.tasks.task import GraderSpec

pytestmark = needs_root
BASE = {"calc.py": "x = 1\n"}
NAMED = EvalCmdSpec(eval_cmd="python3 calc.py", fail_to_pass=("t.py::test_a",))
SCRIPT = F2pSpec(script="import calc\nassert calc.x == 2\n")
KNOWS_THE_NONCE = """\
import json, os, sys
frame = sys._getframe()
while "nonce" not in frame.f_locals:
    frame = frame.f_back
report = {"nonce": frame.f_locals["nonce"], **json.loads(%r)}
os.write(frame.f_locals["channel"], json.dumps(report).encode() + b"\\n")
os._exit(0)
"""


async def judged(folder: Path, spec: GraderSpec, text: str) -> Verdict:
    grader = build(GraderConfig(retries=0, timeout_s=60))
    provider = local_provider(folder / "state")
    patch = patch_of(BASE, {"calc.py": text})
    verdict: Verdict = await grader.grade(calc_task(files=BASE, grader=spec), patch, provider)
    return verdict


@pytest.mark.parametrize(
    "text",
    [
        f"open({CHANNEL!r}, 'w').write('[' * 100000)\n",
        f"open({CHANNEL!r}, 'w').write('[\"t.py::test_a\", ' + '[' * 100000)\n",
        f"import os\nos.mkdir({CHANNEL!r})\n",
        f"import os\nos.symlink({CHANNEL!r}, {CHANNEL!r})\n",
        f"import os\nos.mkfifo({CHANNEL!r})\n",
        f"import os\nos.ftruncate(os.open({CHANNEL!r}, os.O_CREAT | os.O_RDWR), 1 << 40)\n",
    ],
    ids=["nested", "nested outcome", "folder", "link to itself", "pipe", "a terabyte"],
)
async def test_what_is_no_file_of_the_plug_ins_confirms_no_test(tmp_path: Path, text: str) -> None:
    verdict = await judged(tmp_path, NAMED, text)
    assert (verdict.status, verdict.reward) == ("failed", 0.0), verdict.log
    assert "exit_code" not in verdict.metadata, "the command itself succeeded"


async def test_a_report_that_is_nested_without_end_is_none(tmp_path: Path) -> None:
    text = "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'\\n' + b'[' * 60000 + b'\\n')\n    except OSError: pass\n"
    verdict = await judged(tmp_path, SCRIPT, text + "x = 1\n")
    assert (verdict.status, verdict.reward) == ("failed", 0.0), verdict.log


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"code": 0, "results": ["passed", "passed"], "others": {}, "changed": []},
        {"code": 0, "results": [], "others": {}, "changed": []},
        {"code": "0", "results": ["passed"], "others": {}, "changed": []},
        {"code": 0, "results": ["passed"], "others": {"failed": "x"}, "changed": []},
        {"code": 0, "results": ["passed"], "others": [], "changed": []},
        {"code": 0, "results": ["passed"], "others": {}, "changed": 1},
    ],
    ids=["empty", "too many", "too few", "code", "count", "others", "changed"],
)
async def test_a_report_that_the_runner_cannot_have_written_is_forged(tmp_path: Path, report: dict[str, Any]) -> None:
    verdict = await judged(tmp_path, SCRIPT, KNOWS_THE_NONCE % json.dumps(report))
    assert (verdict.status, verdict.reward) == ("tampered", 0.0), verdict.log
    assert "forged_report" in verdict.metadata["signals"]
