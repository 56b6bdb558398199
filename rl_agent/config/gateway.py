"""Schema of `conf/gateway.yaml`: the E2B-compatible server, `python -m rl_agent.sandboxes.gateway`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass(slots=True, kw_only=True)
class GatewayConfig:
    """Serves sandboxes of any provider to clients that speak E2B's wire protocol."""

    host: str = "127.0.0.1"
    """Where it listens. Whoever reaches it and has the key runs programs here: leave it on loopback unless you mean it."""
    port: int = 3000
    """0: a free one, printed at the start."""
    expose: list[str] = field(default_factory=list)
    """`host:port` of this machine that every box reaches from its start (an adapter); `127.0.0.1:*` lets clients ask for any
    port of this machine."""
    image_metadata_key: str = "image"
    """Metadata key whose value is the provider's image; a box without it boots the image named by its template."""
    images: dict[str, str] = field(default_factory=lambda: {"base": "host"})
    """Template name -> image of the provider; other names are taken as images."""
    default_user: str = "agent"
    """Who a command runs as that names nobody, or E2B's usual `user`."""
    default_lifetime_s: float = 300.0
    max_lifetime_s: float = 86400.0
    max_boxes: int = 256
    max_body_mb: int = 16
    """Largest JSON request (commands, their environment, their input)."""
    max_upload_mb: int = 4096
    """Largest file; it is kept on disk, not in memory, on its way."""
    assets_dir: str | None = None
    """Where programs that boxes share are kept, uploaded once; null: ~/.cache/rl_agent/gateway_assets."""
    allow_host_network: bool = False
    """Whether `allow_internet_access` (which E2B's clients set by default) gives a box this machine's network."""


@dataclass(slots=True, kw_only=True)
class GatewayRoot:
    """The gateway's whole configuration."""

    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    sandbox: Any = MISSING
