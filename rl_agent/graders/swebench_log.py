"""Reads a log with the parser of the `swebench` package, in a separate process.

The package's code is trusted, but the log is not: a pattern may search it forever, and `re` holds the interpreter lock
while it searches. The process costs the import of the package, a few seconds.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rl_agent.graders.parse import ParserError, call, valid_text
from rl_agent.graders.swebench_package import last_block, package_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.graders.swebench_package import Package

STATUSES: Final = "statuses"
"""Ask for test -> outcome."""
REPORT: Final = "report"
"""Ask for the package's own report."""
OUTCOMES: Final = {"XFAIL": "xfailed"}
"""Outcome of the package -> our name, if it is not just the lower case."""
ROOT: Final = str(Path(__file__).parents[2])
LOG: Final = "test_output.txt"


async def read_log(what: str, instance: Mapping[str, Any], log: bytes, *, timeout_s: float) -> dict[str, Any]:
    """Return the statuses or the report (`what`) of a log. Raises ParserError if its parser fails or takes longer than `timeout_s`."""
    with tempfile.TemporaryDirectory(prefix="rl_agent-swebench-") as folder:
        _write(Path(folder), instance, log)
        places = os.pathsep.join(dict.fromkeys((ROOT, *filter(None, sys.path))))
        words = [sys.executable, "-m", "rl_agent.graders.swebench_log", what, folder]
        printed, code = await call(words, timeout_s, PYTHONPATH=places)
        return _read(Path(folder), printed, code)


def _write(folder: Path, instance: Mapping[str, Any], log: bytes) -> None:
    (folder / "row.json").write_text(json.dumps(dict(instance), default=str))
    (folder / LOG).write_bytes(valid_text(log))


def _read(folder: Path, printed: bytes, code: int) -> dict[str, Any]:
    if code != 0:
        raise ParserError(f"the package's log parser ended with {code}: {printed[-2000:].decode(errors='replace')}")
    found: dict[str, Any] = json.loads((folder / "found.json").read_bytes())
    return found


def statuses(package: Package, log: bytes) -> dict[str, str]:
    """Return test -> outcome, as the package's parser reads the last marked block of a log."""
    text = last_block(log)
    if text is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="rl_agent-swebench-") as folder:
        path = Path(folder, "test_output.txt")
        path.write_bytes(text)
        found, _ = package.grading.get_logs_eval(package.test_spec, str(path))
    return {str(name): OUTCOMES.get(str(status), str(status).lower()) for name, status in found.items()}


def report(package: Package, log: bytes) -> dict[str, Any]:
    """Return the package's own report on a log."""
    name = str(package.test_spec.instance_id)
    prediction = {"instance_id": name, "model_patch": "applied", "model_name_or_path": "policy"}
    with tempfile.TemporaryDirectory(prefix="rl_agent-swebench-") as folder:
        path = Path(folder, "test_output.txt")
        path.write_bytes(log)
        reports = package.grading.get_eval_report(package.test_spec, prediction, str(path), include_tests_status=True)
    found: dict[str, Any] = reports[name]
    return found


def main(what: str, folder: Path) -> None:
    """Run the process: read the row and the log in `folder`, and write the result there."""
    package = package_of(json.loads((folder / "row.json").read_bytes()))
    read = {STATUSES: statuses, REPORT: report}[what]
    (folder / "found.json").write_text(json.dumps(read(package, (folder / LOG).read_bytes()), default=str))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
