"""A held port is nobody's but its server's."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

import pytest

from rl_agent.errors import ConfigError
from rl_agent.ports import hold_port, number

HERE = "127.0.0.1"
OTHERS = 500


def test_a_server_takes_a_held_port_and_is_the_one_that_is_reached() -> None:
    with hold_port(HERE) as held, socket.create_server((HERE, number(held))) as server:
        with socket.create_connection((HERE, number(held))) as caller, server.accept()[0] as answerer:
            caller.sendall(b"hello")
            assert answerer.recv(5) == b"hello"
        held.close()
        with socket.create_connection((HERE, server.getsockname()[1])), server.accept()[0]:
            pass


def test_a_held_port_is_not_given_to_those_who_ask_for_a_free_one() -> None:
    with ExitStack() as stack:
        held = [number(stack.enter_context(hold_port(HERE))) for _ in range(OTHERS)]
        given = [stack.enter_context(socket.create_server((HERE, 0))).getsockname()[1] for _ in range(OTHERS)]
    assert len({*held, *given}) == 2 * OTHERS


def test_a_program_that_cannot_share_is_refused_a_held_port() -> None:
    with hold_port(HERE) as held, socket.socket() as other, pytest.raises(OSError, match="in use") as error:
        other.bind((HERE, number(held)))
    assert error.value.errno == errno.EADDRINUSE


def test_a_port_in_use_is_an_error_with_its_key() -> None:
    with socket.create_server((HERE, 0)) as server, pytest.raises(ConfigError, match=r"Set engine.port=0"):
        hold_port(HERE, server.getsockname()[1], key="engine.port")
