"""Reservation of ports until their server binds them."""

from __future__ import annotations

import socket
from typing import Final

from rl_agent.errors import ConfigError

LOOPBACK: Final = "127.0.0.1"


def hold_port(host: str, port: int = 0, *, key: str = "") -> socket.socket:
    """Return a socket bound to `port` of `host` (0: any free) that never listens. Close it when the server listens.

    A server that sets SO_REUSEADDR, as servers do, can still bind the port, but the kernel does not assign it as a free
    port. Without the reservation, another process sometimes takes a free port before the server has started.

    Raises ConfigError, naming the config key `key`, if `port` is in use.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((host, port))
    except OSError as error:
        holder.close()
        raise ConfigError(
            f"port {port} on {host}: unavailable ({error.strerror}). Set {key}=0 to use a free port."
        ) from error
    return holder


def number(held: socket.socket) -> int:
    """Return the port of a socket."""
    return int(held.getsockname()[1])
