"""Command `python -m rl_agent.sandboxes.gateway [gateway.port=3000] [sandbox=local] ...`: serve until interrupted."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import rl_agent
from rl_agent import secrets
from rl_agent.config.hints import precompose
from rl_agent.config.load import load
from rl_agent.config.options import register
from rl_agent.errors import RlAgentError
from rl_agent.sandboxes.gateway.server import Gateway

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.config.gateway import GatewayRoot

_PACKAGE: Final = Path(rl_agent.__file__).parent
CONF: Final = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"
FAILED: Final = 1


def configuration(overrides: Sequence[str]) -> GatewayRoot:
    """Return the typed configuration."""
    register()
    return cast("GatewayRoot", cast("Any", load(precompose(CONF, "gateway", overrides))))


async def serve(root: GatewayRoot) -> None:
    """Serve until SIGINT or SIGTERM."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a box needs a few descriptors, a stream one
    key = secrets.require("E2B_API_KEY", "the gateway (clients must send it)")
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    async with Gateway(root.sandbox.build(), root.gateway, key=key) as gateway:
        print(f"gateway: {gateway.url}", flush=True)  # noqa: T201 (the command's output)
        await over.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        asyncio.run(serve(configuration(sys.argv[1:] if arguments is None else arguments)))
    except RlAgentError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
