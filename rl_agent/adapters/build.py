"""Construction of the adapter server from its config."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from rl_agent.adapters.record import AdapterLimits
from rl_agent.adapters.server import AdapterServer
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.adapters.base import Dialect
    from rl_agent.config.adapter import AdapterConfig
    from rl_agent.engine.base import Sampler
    from rl_agent.tokens.renderer import Renderer
    from rl_agent.tokens.turn import Sampling

_METHODS = ("action", "parse", "call_id", "body", "events", "keepalive", "error", "error_event", "token_count")


def build_adapter(
    config: AdapterConfig,
    *,
    harness_dialect: str,
    engine: Sampler,
    renderer: Renderer,
    sampling: Sampling,
    max_context_tokens: int,
    max_turns: int | None,
) -> AdapterServer:
    """Return the server, not yet started. Build `renderer` with `keep_reasoning` set according to `history_reasoning`.

    Raises ConfigError.
    """
    path = harness_dialect if config.dialect == "auto" else config.dialect
    return AdapterServer(
        dialects=(build_dialect(path, config.drop_system),),
        engine=engine,
        renderer=renderer,
        sampling=sampling,
        limits=AdapterLimits(
            max_turns=max_turns,
            max_context_tokens=max_context_tokens,
            max_segment_tokens=config.max_segment_tokens,
            max_body_bytes=config.max_body_mb * 1024 * 1024,
            max_concurrent=config.max_concurrent,
            linger_s=config.linger_s,
            drain_s=config.drain_s,
        ),
        bind_host=config.bind_host,
        port=config.port,
        keepalive_s=config.keepalive_s,
    )


def build_dialect(path: str, drop_system: Sequence[str]) -> Dialect:
    """Import and build the dialect at a dotted path. Raises ConfigError."""
    module_name, _, class_name = path.rpartition(".")
    remedy = "Set adapter.dialect to the dotted path of a Dialect class or to `auto`."
    try:
        kind = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"adapter.dialect: {path!r}: cannot be imported: {error}. {remedy}") from error
    missing = [name for name in _METHODS if not callable(getattr(kind, name, None))]
    if missing:
        raise ConfigError(f"adapter.dialect: {path}: not a Dialect: missing {', '.join(missing)}. {remedy}")
    try:
        dialect: Dialect = kind(drop_system=tuple(drop_system))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return dialect
