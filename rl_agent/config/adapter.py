"""Config of the adapter: the HTTP server that emulates the vendor's API for the agent CLI."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class HistoryReasoning(StrEnum):
    """Handling of the reasoning of earlier turns."""

    keep = "keep"
    """Reasoning stays in the prompt: one chain, one segment."""
    template = "template"
    """The model's chat template decides. If it drops reasoning at a new user message, the chain forks."""


@dataclass(kw_only=True)
class AdapterConfig:
    """Options of the adapter. Each rollout worker runs one."""

    dialect: str = "auto"
    """Dotted path of a Dialect class; `auto`: the dialect of the harness."""
    bind_host: str = "127.0.0.1"
    """Address that the adapter listens on. Sandboxes on other machines must be able to reach it."""
    advertise_host: str | None = None
    """Host name or address at which agents reach the adapter; `auto`: the address of the rollout worker's node; null:
    the result of the sandbox provider's `expose`."""
    port: int = 0
    """Port of the adapter; 0: a free port."""
    keepalive_s: float = 10.0
    """Interval between keep-alive events to a waiting client."""
    drain_s: float = 5.0
    """Time for which closing a session waits for running requests."""
    linger_s: float = 1.0
    """Time that a generation continues after its client disconnects. A retry within this time gets its result."""
    max_body_mb: int = 32
    """Maximum size of a request body."""
    max_concurrent: int = 64
    """Maximum concurrent requests per session. Further requests are told to retry later."""
    max_segment_tokens: int | None = None
    """Maximum length of a training sample. Tokens beyond it are excluded as `segment_full`. Null: no limit."""
    drop_system: list[str] = field(default_factory=list)
    """Regular expressions. Blocks and lines of system messages that match one in full are hidden from the policy."""
    history_reasoning: HistoryReasoning = HistoryReasoning.keep
    """Handling of the reasoning of earlier turns."""
