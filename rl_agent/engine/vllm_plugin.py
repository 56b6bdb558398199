"""A plugin that vLLM loads in each of its processes (entry point `vllm.general_plugins`): on a CPU, waiting must not cost a core.

vLLM's processes hand each other work through shared memory, and a reader spins for a second after its last message. On a
machine where agents, trainer and engine share two cores, that takes a whole core away from everybody: measured, 60 % of a
core during a step, of which a quarter was work. The writer notifies through a socket anyway, so the reader can sleep on it.
"""

from __future__ import annotations

from typing import Any, Final

LONGEST_WAIT_MS: Final = 200
"""A reader looks again after this time, in case the notification went out before it listened."""


def register() -> None:
    """Called by vLLM; may be called again."""
    from vllm.distributed.device_communicators import shm_broadcast  # noqa: PLC0415 (only inside vLLM's processes)
    from vllm.platforms import current_platform  # noqa: PLC0415

    if current_platform.is_cpu() and not hasattr(shm_broadcast.SpinCondition, "spins"):
        _sleep_instead(shm_broadcast.SpinCondition)


def _sleep_instead(condition: Any) -> None:
    spin = condition.wait

    def wait(self: Any, timeout_ms: int | None = None) -> None:
        self.busy_loop_s = 0.0
        spin(self, LONGEST_WAIT_MS if timeout_ms is None else min(timeout_ms, LONGEST_WAIT_MS))

    condition.wait = wait
    condition.spins = False
