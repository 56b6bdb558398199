"""Config of the E2B-compatible server, `python -m rl_agent.sandboxes.gateway`."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from rl_agent.config.sandbox import SandboxConfig


@dataclass(kw_only=True)
class GatewayConfig:
    """Options of the server that offers the sandboxes of any provider over E2B's wire protocol."""

    host: str = "127.0.0.1"
    """Address that the gateway listens on. A client that reaches it and has the key runs programs on this machine."""
    port: int = 3000
    """0: a free port, printed at the start."""
    expose: list[str] = field(default_factory=list)
    """Ports of this machine that boxes can reach: `127.0.0.1:<port>` from boot (an adapter), `127.0.0.1:*` for any port
    that a client requests."""
    image_metadata_key: str = "image"
    """Metadata key whose value is the image. A box without the key boots the image that its template names."""
    images: dict[str, str] = field(default_factory=lambda: {"base": "host"})
    """Template name -> image. A template that is not listed is itself an image name."""
    default_user: str = "agent"
    """User of a command that names no user, or names E2B's default `user`."""
    default_lifetime_s: float = 300.0
    max_lifetime_s: float = 86400.0
    max_boxes: int = 256
    max_body_mb: int = 16
    """Maximum size of a JSON request (a command, its environment, its input)."""
    max_upload_mb: int = 4096
    """Maximum size of an uploaded file. The gateway stores it on disk, not in memory."""
    assets_dir: str | None = None
    """Folder for programs that boxes share, uploaded once; null: ~/.cache/rl_agent/gateway_assets."""
    allow_host_network: bool = False
    """Give a box this machine's network if its client asks for internet access, as E2B's clients do by default."""


@dataclass(kw_only=True)
class GatewayRoot:
    """Root of the gateway's configuration."""

    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    sandbox: SandboxConfig = MISSING
