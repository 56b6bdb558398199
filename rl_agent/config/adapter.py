"""Schema of `adapter/`: the HTTP server that plays the vendor's API to the agent program."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class HistoryReasoning(StrEnum):
    """Handling of the reasoning of earlier turns."""

    keep = "keep"
    """It stays in the prompt: one chain, one segment."""
    template = "template"
    """As the model's chat template has it: where that drops reasoning at a new user message, the chain forks."""


@dataclass(kw_only=True)
class AdapterConfig:
    """One server in each rollout worker."""

    dialect: str = "auto"
    """Dotted path of a Dialect class; `auto`: the one that the harness speaks."""
    bind_host: str = "127.0.0.1"
    """Address that the server listens on. Sandboxes on other machines need one that they can reach."""
    advertise_host: str | None = None
    """The host name that agents are told; `auto`: the address of the rollout worker's node; null: what the sandbox provider's
    `expose` returns."""
    port: int = 0
    """0: a free one."""
    keepalive_s: float = 10.0
    """Time between the events that keep a waiting client from giving up."""
    drain_s: float = 5.0
    """Time that closing a session waits for running requests."""
    linger_s: float = 1.0
    """Time that a generation continues after its client disconnects. A retry within this time gets its result."""
    max_body_mb: int = 32
    max_concurrent: int = 64
    """Most requests of one session at a time; more are told to come back later."""
    max_segment_tokens: int | None = None
    """Longest training sample; what lies beyond is excluded as `segment_full`. Null: no bound."""
    drop_system: list[str] = field(default_factory=list)
    """Regular expressions; a block or a line of a system message that one matches in full is not shown to the policy."""
    history_reasoning: HistoryReasoning = HistoryReasoning.keep
