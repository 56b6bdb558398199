"""Makes git patches from files, without git."""

from __future__ import annotations

import difflib
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def patch_of(base: Mapping[str, str], after: Mapping[str, str | None]) -> bytes:
    """The patch that turns `base` into `base` with `after` (None: deleted) over it."""
    return "".join(_section(path, base.get(path), text) for path, text in after.items()).encode()


def _section(path: str, old: str | None, new: str | None) -> str:
    header = f"diff --git a/{path} b/{path}\n"
    if old is None:
        header += "new file mode 100644\n"
    elif new is None:
        header += "deleted file mode 100644\n"
    lines = difflib.unified_diff(
        _lines(old or ""),
        _lines(new or ""),
        "/dev/null" if old is None else f"a/{path}",
        "/dev/null" if new is None else f"b/{path}",
    )
    return header + "".join(lines)


def _lines(text: str) -> list[str]:
    """The lines as git sees them: a form feed ends none."""
    return io.StringIO(text, newline="\n").readlines()
