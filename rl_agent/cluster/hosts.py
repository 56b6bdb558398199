"""Start, stop and inspect Ray on a list of hosts over ssh: in parallel, with a timeout and one error message per host.

Anyone who can connect to a Ray cluster can run programs on it, so the cluster requires a token. It is the token of the
first host's user, and it is sent to the other hosts through the shell's stdin, never on a command line.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rl_agent.cluster.marked import VARIABLE
from rl_agent.errors import ConfigError, InfraError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rl_agent.config.bring_up import BringUpConfig

_TOLD: Final = 600
"""Number of characters shown of a host's error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine."""

    name: str
    address: str | None = None
    role: str | None = None


def parse_hosts(text: str) -> list[Host]:
    """Parse `name[=address][:role],...`. Raises ConfigError."""
    hosts = []
    for part in text.split(","):
        rest, _, role = part.strip().partition(":")
        name, _, address = rest.partition("=")
        if not name:
            raise ConfigError(f"hosts={text}: {part!r} has no host name. Use hosts=name[=address][:role],...")
        hosts.append(Host(name=name, address=address or None, role=role or None))
    if len({host.name for host in hosts}) < len(hosts):
        raise ConfigError(f"hosts={text}: a host name occurs twice. Remove one.")
    return hosts


class Hosts:
    """Ray on a list of hosts."""

    def __init__(self, config: BringUpConfig) -> None:
        self.hosts = parse_hosts(config.hosts)
        self._config = config
        self._python = shlex.quote(config.python or sys.executable)
        self._token = ""

    async def up(self) -> str:
        """Start Ray on every host that does not run it yet, and return `cluster.address`.

        If a host fails, Ray is stopped again on the hosts where this call started it. Raises InfraError with every host
        that failed.
        """
        first = self.hosts[0]
        counts = await self._everywhere(lambda host: self._run(host, self._marked("count", host)), self.hosts)
        missing = [host for host, count in zip(self.hosts, counts, strict=True) if not int(count)]
        self._require_startable(missing)
        try:
            self._token = await self._run(first, f"{self._python} -m ray.scripts.scripts get-auth-token --generate")
            if first in missing:
                await self._start(first, f"--head --port={self._config.port} --include-dashboard=false")
            address = await self._address(first)
            others = [host for host in missing if host != first]
            await self._everywhere(lambda host: self._start(host, f"--address={shlex.quote(address)}"), others)
        except BaseException:
            with suppress(InfraError):
                await self._end(missing)
            raise
        return address

    def _require_startable(self, missing: Sequence[Host]) -> None:
        first = self.hosts[0]
        if not missing:
            raise InfraError(
                f"{first.name}: this cluster is up already. Run `python -m rl_agent.cluster down hosts=...` first, or choose another port=."
            )
        if first in missing and len(missing) < len(self.hosts):
            raise InfraError(
                f"{first.name}: Ray is up on other hosts but not on this one, so their cluster has lost its head. "
                "Run `python -m rl_agent.cluster down hosts=...` first."
            )

    async def down(self) -> dict[str, int]:
        """Stop Ray on every host, and return the number of ended processes per host."""
        return await self._end(self.hosts)

    async def _end(self, hosts: Sequence[Host]) -> dict[str, int]:
        ended = await self._everywhere(lambda host: self._run(host, self._marked("end", host)), hosts)
        return {host.name: int(count) for host, count in zip(hosts, ended, strict=True)}

    async def status(self) -> list[str]:
        """Return one line per node, as reported by Ray on the first host."""
        first = self.hosts[0]
        script = (
            "import json, logging, ray; ray.init(address='auto' if {a!r} is None else {a!r}, log_to_driver=False, "
            "logging_level=logging.ERROR); print(json.dumps(ray.nodes()))"
        ).format(a=f"{first.address}:{self._config.port}" if first.address else None)
        answer = await self._run(first, f"export RAY_AUTH_MODE=token\n{self._python} -c {shlex.quote(script)}")
        return [
            f"{node['NodeManagerAddress']:16} {'alive' if node['Alive'] else 'dead':6} "
            f"role={node.get('Labels', {}).get('role', '-'):8} CPU={node['Resources'].get('CPU', 0):g} "
            f"GPU={node['Resources'].get('GPU', 0):g}"
            for node in json.loads(answer.splitlines()[-1])
        ]

    async def _address(self, first: Host) -> str:
        if first.address:
            return f"{first.address}:{self._config.port}"
        script = "import ray; print(ray.util.get_node_ip_address())"
        found = await self._run(first, f"{self._python} -c {shlex.quote(script)}")
        return f"{found.splitlines()[-1]}:{self._config.port}"

    async def _start(self, host: Host, how: str) -> str:
        place = f" --node-ip-address={shlex.quote(host.address)}" if host.address else ""
        role = f" --labels={shlex.quote(f'role={host.role}')}" if host.role else ""
        start = f"{self._python} -m ray.scripts.scripts start {how}{place}{role} --disable-usage-stats"
        environment = {
            VARIABLE: self._mark(host),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self._token,
            "RAY_worker_niceness": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
        exports = "export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        return await self._run(host, f"{exports}\n{start} {self._config.start_options} </dev/null")

    def _marked(self, what: str, host: Host) -> str:
        return f"{self._python} -m rl_agent.cluster.marked {what} {shlex.quote(self._mark(host))}"

    def _mark(self, host: Host) -> str:
        return f"{self._config.port}@{host.name}"

    async def _everywhere(self, work: Callable[[Host], Awaitable[str]], hosts: Sequence[Host]) -> list[str]:
        """Run a script on all hosts in parallel. Raises InfraError with every failure."""
        results = await asyncio.gather(*(work(host) for host in hosts), return_exceptions=True)
        failures = [found for found in results if isinstance(found, BaseException)]
        for failure in failures:
            if not isinstance(failure, InfraError):
                raise failure
        if failures:
            raise InfraError("\n".join(str(failure) for failure in failures))
        return [found for found in results if isinstance(found, str)]

    async def _run(self, host: Host, script: str) -> str:
        """Run a script on one host and return its output. Raises InfraError."""
        words = [*shlex.split(self._config.ssh), host.name, "bash", "-s"]
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise InfraError(f"{host.name}: `{words[0]}` cannot be run ({error}). Set ssh=...") from error
        try:
            async with asyncio.timeout(self._config.timeout_s):
                out, err = await process.communicate(script.encode() + b"\n")
        except TimeoutError:
            raise InfraError(
                f"{host.name}: no answer within timeout_s={self._config.timeout_s:.0f} s. Check that "
                f"`{self._config.ssh} {host.name}` logs in without a password."
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise InfraError(f"{host.name}: exit code {process.returncode}: {_reason(out, err)}")
        return out.decode(errors="replace").strip()


def _reason(out: bytes, err: bytes) -> str:
    """Return the end of a host's output.

    Ray prints errors to stdout, and a note about tokens to stderr at every start.
    """
    lines = (out + b"\n" + err).decode(errors="replace").splitlines()
    kept = [line.strip() for line in lines if line.strip() and "token" not in line.lower()]
    return " ".join(kept)[-_TOLD:] or "no output"
