"""Plugin for vLLM's processes (entry point `vllm.general_plugins`): waiting on a CPU must not use a core.

vLLM's processes exchange work through shared memory, and a reader spins for a second after its last message. If agents,
trainer and engine share two cores, that takes a core from all of them: 60 % of a core during a step, of which a quarter
was work. The writer also notifies through a socket, so the reader can sleep on the socket.
"""

from __future__ import annotations

from typing import Any, Final

LONGEST_WAIT_MS: Final = 200
"""Interval at which a reader checks again, in case it missed a notification."""


def register() -> None:
    """Apply the patch. Called by vLLM, possibly several times."""
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
