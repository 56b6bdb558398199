"""How many rollouts the engine can take: more while it has room, fewer when requests queue (additive increase, multiplicative decrease)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rl_agent.engine.base import EngineLoad

_FULL: Final = 0.92
"""Share of the key-value cache above which vLLM soon evicts running requests and computes them again."""
_ROOM: Final = 0.75
_LESS: Final = 0.85
_SETTLE: Final = 10
"""Observations after a change before the next: what was just started, or not, must show first."""


@dataclass(slots=True, kw_only=True)
class AdaptiveLimit:
    """Observe about once a second; `value` is the limit of now."""

    least: int
    most: int
    value: int
    _quiet: int = 0

    def observe(self, load: EngineLoad, running: int) -> int:
        """`running`: rollouts at the moment. Most of them wait for their agent's tools, not for the engine."""
        used = load.kv_cache_usage or 0.0
        if self._quiet:
            self._quiet -= 1
        elif load.waiting or used > _FULL:
            self._change(int(min(self.value, max(running, self.least)) * _LESS))
        elif used < _ROOM and running >= self.value:
            self._change(self.value + max(1, self.value // 16))
        return self.value

    def _change(self, wanted: int) -> None:
        value = min(self.most, max(self.least, wanted))
        if value != self.value:
            self.value = value
            self._quiet = _SETTLE
