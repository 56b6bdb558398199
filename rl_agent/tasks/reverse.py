"""Reversal of text patches."""

from __future__ import annotations

import re
from typing import Final

_HUNK: Final = re.compile(r"@@ -(\d+(?:,(\d+))?) \+(\d+(?:,(\d+))?) @@(.*)", re.DOTALL)
_MODES: Final = {
    "new file mode": "deleted file mode",
    "deleted file mode": "new file mode",
    "old mode": "new mode",
    "new mode": "old mode",
}


def reverse(patch: str) -> str:
    """Return the reverse of a text patch. Hunks are parsed by line counts, so no content is taken for a header."""
    done: list[str] = []
    added: list[str] = []
    """Lines that the reverse adds. They follow the lines that it removes."""
    last = done
    old = new = 0
    for line in re.split(r"(?<=\n)", patch):  # only git's line ending
        if line.startswith("\\"):  # belongs to the previous line
            last.append(line)
        elif old > 0 or new > 0:
            old -= line[:1] != "+"
            new -= line[:1] != "-"
            last = added if line.startswith("-") else done
            if line[:1] in ("-", "+"):
                last.append(("+" if last is added else "-") + line[1:])
            else:
                done += [*added, line]
                added.clear()
        else:
            done += added
            added.clear()
            last = done
            if hunk := _HUNK.match(line):
                old, new = (1 if count is None else int(count) for count in (hunk[2], hunk[4]))
            _reverse_header(line, hunk, done)
    return "".join([*done, *added])


def _reverse_header(line: str, hunk: re.Match[str] | None, done: list[str]) -> None:
    if hunk is not None:
        done.append(f"@@ -{hunk[3]} +{hunk[1]} @@{hunk[5]}")
    elif line.startswith("+++ ") and done and done[-1].startswith("--- "):
        done[-1:] = ["--- " + _prefix(line[4:], "a/"), "+++ " + _prefix(done[-1][4:], "b/")]
    else:
        done.append(_mode(line))


def _prefix(name: str, prefix: str) -> str:
    return name if name.startswith("/dev/null") else prefix + name.partition("/")[2]


def _mode(line: str) -> str:
    for one, other in _MODES.items():
        if line.startswith(one):
            return other + line[len(one) :]
    return line
