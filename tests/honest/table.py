"""All honest solutions."""

from __future__ import annotations

from typing import Final

from tests.honest.plain import PLAIN

CASES: Final = (*PLAIN,)
