"""Start and stop Ray on a list of hosts: `python -m rl_agent.cluster up|down|status hosts=a,b:cpu ...`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Final, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rl_agent.cluster.hosts import Hosts
from rl_agent.config.bring_up import BringUpConfig
from rl_agent.config.names import nearest
from rl_agent.errors import ConfigError, RlAgentError

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED: Final = 1
COMMANDS: Final = ("up", "down", "status")
USAGE: Final = """usage: python -m rl_agent.cluster up|down|status hosts=name[=address][:role],... [name=value ...]

  up       start Ray on all hosts that do not run it yet, and print cluster.address; start runs on the first host
  down     stop only the processes that `up` started
  status   list the nodes of the cluster

  Options: port=6379  ssh="ssh -o BatchMode=yes -o ConnectTimeout=10"  python=<path on every host>
           start_options="--num-gpus=8"  timeout_s=120        docs/scaling.md has examples.
"""


def read(words: Sequence[str]) -> BringUpConfig:
    """Parse the options. Raises ConfigError."""
    names = [field.name for field in fields(BringUpConfig)]
    for word in words:
        name, equals, _ = word.partition("=")
        if not equals or name not in names:
            hint = f" Did you mean {near}=?" if (near := nearest(name, names)) else ""
            raise ConfigError(f"`{word}`: no such option.{hint}\n\n{USAGE}")
    try:
        given = OmegaConf.from_dotlist(list(words))
        config = cast("BringUpConfig", OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(BringUpConfig), given)))
    except OmegaConfBaseException as error:
        raise ConfigError(f"{str(error).splitlines()[0]}\n\n{USAGE}") from error
    return config


async def run(command: str, hosts: Hosts) -> list[str]:
    """Run a command, and return the lines to print."""
    if command == "up":
        address = await hosts.up()
        first = hosts.hosts[0].name
        return [
            f"{len(hosts.hosts)} nodes are up. On {first}: python -m rl_agent cluster=ray_address cluster.address={address} ..."
        ]
    if command == "down":
        return [f"{name}: {count} processes ended" for name, count in (await hosts.down()).items()]
    return await hosts.status()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not words or words[0] not in COMMANDS:
            raise ConfigError(f"no valid command given. Use up, down or status.\n\n{USAGE}")
        print("\n".join(asyncio.run(run(words[0], Hosts(read(words[1:]))))))  # noqa: T201 (the output of the command)
    except RlAgentError as error:
        print("\n".join(f"error: {line}" for line in str(error).splitlines()), file=sys.stderr)  # noqa: T201
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
