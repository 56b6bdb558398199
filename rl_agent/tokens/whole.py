"""Detection of incomplete parses: the parsed calls are rendered again and compared with the sampled text.

Parsers made for serving cut a value at its own closing tag, close an unclosed call, or drop text between calls.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rl_agent.tokens.messages import ParsedReply

MARK: Final = "anchor-6f1c9b"
"""Replaces the policy's text when a reply is rendered again. Its first occurrence marks the start of the reply."""
_TAG: Final = r"<[^\s<>]+>"


def is_whole(sampled: str, read: ParsedReply, written: str) -> bool:
    """Return whether `written`, the rendered calls of `read`, has all letters of `sampled` outside `read`'s texts."""
    missing = _units(sampled) - _units(read.content) - _units(read.reasoning or "")
    again = _units(written.replace(MARK, ""))
    unclosed = [unit for unit in again - missing if unit.startswith("<")]
    return not unclosed and not missing - again


def _units(text: str) -> Counter[str]:
    """Count each tag, letter and digit, with escapes resolved. Formats and reasoning tags differ in everything else."""
    plain = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    plain = re.sub(r"\\[nrtbf]", " ", plain)
    tags = re.findall(_TAG, plain)
    rest = re.sub(_TAG, "", plain)
    return Counter([t for t in tags if "think" not in t and "|" not in t] + [c for c in rest if c.isalnum()])
