"""Reads pytest's own output: what published logs say, to be compared with their reports."""

from __future__ import annotations

import re
from typing import Final

from rl_agent.graders.swebench_package import END, START

_STATUS: Final = r"(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)"
_VERBOSE: Final = re.compile(rf"^(\S.*?::.*?) {_STATUS}(?:\s+\(.*\))?(?:\s+\[\s*\d+%\])?\s*$", re.MULTILINE)
_SUMMARY: Final = re.compile(rf"^{_STATUS} (\S.*?::.*?)(?: - .*)?$", re.MULTILINE)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def statuses(log: str) -> dict[str, str]:
    """Node id -> status in lower case. Only the last marked block counts; a test with two statuses has the worse one."""
    text = _COLOURS.sub("", log)
    if START in text:
        text = text.rpartition(START)[2].partition(END)[0]
    found: dict[str, str] = {}
    rows: list[tuple[str, str]] = list(_VERBOSE.findall(text))
    rows += [(name, status) for status, name in _SUMMARY.findall(text)]
    for name, status in rows:
        if found.get(name, "passed") == "passed":
            found[name] = status.lower()
    return found
