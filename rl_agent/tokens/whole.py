"""Whether a parser left anything out: the calls that it read are written again, and compared with what was sampled.

Parsers that are made for serving cut a value at its own closing tag, close a call that was not closed, or drop text between calls.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rl_agent.tokens.messages import ParsedReply

MARK: Final = "anchor-6f1c9b"
"""Stands for what the policy said where a reply is written again; its first place in a render is found by this text."""
_TAG: Final = r"<[^\s<>]+>"


def is_whole(sampled: str, read: ParsedReply, written: str) -> bool:
    """Return whether `written`, the calls of `read` in the model's form, has every letter of `sampled` that is not in its texts."""
    missing = _units(sampled) - _units(read.content) - _units(read.reasoning or "")
    again = _units(written.replace(MARK, ""))
    unclosed = [unit for unit in again - missing if unit.startswith("<")]
    return not unclosed and not missing - again


def _units(text: str) -> Counter[str]:
    """Count each tag, letter and digit, with escapes resolved. Formats and reasoning marks differ in everything else."""
    plain = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    plain = re.sub(r"\\[nrtbf]", " ", plain)
    tags = re.findall(_TAG, plain)
    rest = re.sub(_TAG, "", plain)
    return Counter([t for t in tags if "think" not in t and "|" not in t] + [c for c in rest if c.isalnum()])
