"""Ports that stay free until the server that they are meant for takes them."""

from __future__ import annotations

import socket
from typing import Final

from rl_agent.errors import ConfigError

LOOPBACK: Final = "127.0.0.1"


def hold_port(host: str, port: int = 0, *, key: str = "") -> socket.socket:
    """A socket bound to `port` of `host` (0: any free one) that never listens. Close it when the server for it listens.

    A server that sets SO_REUSEADDR, as servers do, can take the port meanwhile; nobody who asks the kernel for a free one
    is given it. (A port that is only found free and let go is, now and then, somebody else's when the server has started.)

    Raises ConfigError, naming the config key `key`, if `port` is taken.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((host, port))
    except OSError as error:
        holder.close()
        raise ConfigError(
            f"port {port} on {host} cannot be used ({error.strerror}). Set {key}=0 to take a free one."
        ) from error
    return holder


def number(held: socket.socket) -> int:
    """The port that a socket has."""
    return int(held.getsockname()[1])
