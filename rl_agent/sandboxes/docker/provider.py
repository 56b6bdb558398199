"""Provider that boots containers of Docker, or of Podman's service.

The first process of a container sleeps for the sandbox's lifetime and then exits, also if its owner was killed; the next start
removes it earlier. A container has Docker's default seccomp filter and capabilities, except those for devices and raw packets,
and setuid programs gain nothing.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import re
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import aiohttp
from aiodocker import Docker, DockerError
from typing_extensions import override

from rl_agent.config.plug_in import Problem
from rl_agent.config.sandbox import Network, RemoteSandboxConfig
from rl_agent.errors import ConfigError, ImageError, SandboxError
from rl_agent.sandboxes.base import limits_of, require_sources
from rl_agent.sandboxes.docker.remote import DockerRemote, remove
from rl_agent.sandboxes.scripted.boots import Boots
from rl_agent.sandboxes.scripted.failures import Failure, again, failure_of
from rl_agent.sandboxes.scripted.sandbox import ScriptedSandbox
from rl_agent.sandboxes.state import LABEL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence

    from aiodocker.containers import DockerContainer

    from rl_agent.config.schema import Config
    from rl_agent.sandboxes.base import Asset, Limits

DROPPED: Final = ("MKNOD", "NET_RAW")
ALREADY: Final = "already in use"
IMAGE: Final = re.compile(r"\w+(?:(?:[./:@]|-+)\w+)*")
PULL_STATUSES: Final = {
    429: ("toomanyrequests", "too many requests"),
    401: ("unauthorized",),
    404: (
        *("manifest unknown", "name unknown", "not found", "no matching manifest", "no such image", "does not exist"),
        *("access to the resource is denied", "invalid reference", "did not resolve to an alias"),
    ),
}
"""Status by the words of a failed pull, first match wins. Docker Hub denies access to images that do not exist."""


@dataclass(kw_only=True)
class DockerSandboxConfig(RemoteSandboxConfig):
    """Containers of Docker or Podman, through Docker's HTTP API."""

    url: str = "unix:///var/run/docker.sock"
    """Address of the service: `unix:///path`, or `http://host:port` without encryption."""
    container_network: str | None = None
    """Docker network that sandboxes join with `network: none`. They reach whatever that network reaches. Null: no network; the
    provider forwards the adapter's port into the container, which needs root and a service on this machine."""
    pull: bool = True
    """Pull missing images from their registry."""
    pull_timeout_s: float = 1800.0

    @property
    def is_local(self) -> bool:
        """Return whether the service is on this machine and shares its file system."""
        return self.url.startswith("unix:")

    @override
    def build(self) -> DockerProvider:
        return DockerProvider(self)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from super().problems(config)
        if self.is_local and self.container_network is None:
            return
        if self.container_network is None and self.network is not Network.host:
            yield Problem(
                "sandbox.container_network",
                f"null: containers of {self.url} are on another machine. Without a network they cannot reach the adapter.",
                "Set it to a Docker network, with adapter.advertise_host, adapter.bind_host=0.0.0.0 and adapter.port.",
            )
        else:
            network = self.container_network or "host"
            yield from self.unreachable_adapter(config, sandboxes=f"containers on network {network}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """Options of one boot."""

    docker: Docker
    image: str
    label: str
    lifetime_s: float
    network: Network
    limits: Limits
    labels: Mapping[str, str]
    assets: Sequence[Asset]


class DockerProvider:
    """See `SandboxProvider`."""

    def __init__(self, config: DockerSandboxConfig) -> None:
        if urlsplit(config.url).scheme not in ("unix", "http", "tcp"):
            raise ConfigError(
                f"sandbox.url={config.url}: unsupported scheme. Use unix:///path/to/socket or http://host:port."
            )
        self._config = config
        self._version = ""
        self._boots = Boots(config, "docker")
        self._images: set[str] = set()
        self._pulling: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @asynccontextmanager
    async def boot(
        self,
        image: str,
        *,
        assets: Sequence[Asset] = (),
        lifetime_s: float,
        network: Network | None = None,
        limits: Limits | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> AsyncIterator[ScriptedSandbox]:
        """See `SandboxProvider.boot`."""
        require_sources(assets)
        async with await self._connect() as docker:
            await self._require_image(docker, image)
            label = self._boots.records.of_boot()
            order = _Order(
                docker=docker,
                image=image,
                label=label,
                lifetime_s=lifetime_s,
                network=network or self._config.network,
                limits=limits_of(self._config) if limits is None else limits,
                labels=labels or {},
                assets=assets,
            )
            end = functools.partial(self._remove_labelled, docker, label)
            async with self._boots.recorded(label, end):
                container = await self._boots.first(functools.partial(self._start, order), end)
                async with self._remote(container, order) as remote:
                    yield await self._ready(order, remote)

    def _remote(self, container: DockerContainer, order: _Order) -> DockerRemote:
        return DockerRemote(
            container,
            address=self._address(order.network),
            local=self._config.is_local,
            timeout_s=self._config.request_timeout_s,
        )

    def _address(self, network: Network) -> str | None:
        """Return the name of this machine in a sandbox; None: ports are forwarded."""
        if network is Network.host and self._config.is_local:
            return "127.0.0.1"
        return self._config.advertise_host if self._config.container_network or network is Network.host else None

    async def _connect(self) -> Docker:
        """Return a client for the service's API version. Raises SandboxError if the service is unreachable."""
        timeout = aiohttp.ClientTimeout(
            connect=self._config.request_timeout_s, sock_read=self._config.request_timeout_s
        )
        if not self._version:  # one ping: aiodocker itself would request Podman's slow /version for every client
            try:
                async with (
                    Docker(self._config.url, timeout=timeout) as docker,
                    docker.session.get(f"{docker.docker_host}/_ping", raise_for_status=True) as answer,
                ):
                    self._version = f"v{answer.headers['Api-Version']}"
            except (aiohttp.ClientError, OSError, KeyError) as error:
                raise SandboxError(
                    f"sandbox.url={self._config.url}: Docker is unreachable ({error}). Start it (`systemctl start docker`, or `podman "
                    "system service --time=0 unix:///run/podman/podman.sock`), or set sandbox.url to its address."
                ) from error
        return Docker(self._config.url, timeout=timeout, api_version=self._version)

    async def _require_image(self, docker: Docker, image: str) -> None:
        """Pull the image if it is missing; concurrent boots pull it once. Raises ImageError if it does not exist."""
        async with self._pulling[image]:
            if image not in self._images:
                await self._image(docker, image)
                self._images.add(image)

    async def _image(self, docker: Docker, image: str) -> None:
        if not IMAGE.fullmatch(image):
            raise self._no_image(image, "invalid name.")

        async def find() -> bool:
            try:
                await docker.images.inspect(image)
            except DockerError as error:
                if error.status == 404:
                    return False
                raise
            return True

        if await again(find, what=f"the look-up of image {image}", retries=self._config.request_retries):
            return
        if not self._config.pull:
            raise self._no_image(image, "not found, and sandbox.pull is false.")

        async def fetch() -> None:
            try:
                async with asyncio.timeout(self._config.pull_timeout_s):
                    await docker.images.pull(image)
            except DockerError as error:
                error = _pull_error(error)
                if failure_of(error) is Failure.MISSING:
                    raise self._no_image(image, str(error)) from error
                raise error from None

        await again(fetch, what=f"the pull of image {image}", retries=self._config.request_retries)

    def _no_image(self, image: str, why: str) -> ImageError:
        return ImageError(
            f"image {image!r} of Docker at {self._config.url}: {why} Run `docker pull` or `docker load`, set sandbox.pull=true, or "
            "correct the task's image."
        )

    async def _start(self, order: _Order, number: int) -> DockerContainer:
        name = f"rl_agent-{order.label}-{number}"

        async def create() -> None:
            try:
                await _complete(order.docker.containers.create(self._body(order), name=name))
            except DockerError as error:
                if ALREADY not in str(error):  # an earlier request succeeded, only its answer was lost
                    raise

        await again(
            create, what=f"the boot of a container with image {order.image!r}", retries=self._config.request_retries
        )
        container = order.docker.containers.container(name)
        await again(container.start, what=f"the start of container {name}", retries=self._config.request_retries)
        return container

    def _body(self, order: _Order) -> dict[str, Any]:
        limits = order.limits
        memory = None if limits.memory_mb is None else limits.memory_mb << 20
        host: dict[str, Any] = {
            "AutoRemove": True,
            "NetworkMode": "host" if order.network is Network.host else self._config.container_network or "none",
            "CapDrop": list(DROPPED),
            "SecurityOpt": ["no-new-privileges:true"],
            "Memory": memory,
            "MemorySwap": memory,
            "PidsLimit": limits.processes,
            "NanoCpus": None if limits.cpus is None else round(limits.cpus * 1e9),
            "Mounts": [
                {"Type": "bind", "Source": str(asset.source.absolute()), "Target": asset.target, "ReadOnly": True}
                for asset in (order.assets if self._config.is_local else ())
            ],
        }
        # bash reaps all orphans while it waits for its child.
        life = f"trap 'exit 0' TERM; sleep {math.ceil(order.lifetime_s)} & wait $!"
        return {
            "Image": order.image,
            "Entrypoint": ["/bin/bash", "-c", life],
            "Cmd": [],
            "User": "0",
            "WorkingDir": "/",
            "Labels": {**order.labels, LABEL: order.label},
            "HostConfig": {name: value for name, value in host.items() if value is not None},
        }

    async def _ready(self, order: _Order, remote: DockerRemote) -> ScriptedSandbox:
        sandbox = ScriptedSandbox(
            remote,
            deadline=time.monotonic() + order.lifetime_s,
            max_output_bytes=self._config.max_output_bytes,
            retries=self._config.request_retries,
        )
        try:
            async with asyncio.timeout(self._config.boot_timeout_s):
                await sandbox.set_up()
        except TimeoutError:
            raise SandboxError(f"sandbox {remote.id} was not ready within {self._config.boot_timeout_s:g} s") from None
        for asset in () if self._config.is_local else order.assets:
            await sandbox.put_asset(asset)
        return sandbox

    async def _remove_labelled(self, docker: Docker, label: str) -> int:
        async def remove_all() -> int:
            found = await docker.containers.list(all=True, filters=json.dumps({"label": [f"{LABEL}={label}"]}))
            return sum([await remove(container) for container in found])

        return await again(remove_all, what=f"the end of {label}", retries=self._config.request_retries)

    async def sweep(self) -> int:
        """Remove the containers of this machine's dead processes; return their number."""
        count = 0
        if orphans := self._boots.records.orphans():
            async with await self._connect() as docker:
                for label in orphans:
                    count += await self._remove_labelled(docker, label)
                    self._boots.records.forget(label)
        return count


def _pull_error(error: DockerError) -> DockerError:
    """Return the error with a status from the registry's words: the service uses one status for all failures."""
    said = str(error.message)
    for status, words in PULL_STATUSES.items():
        if any(word in said.lower() for word in words):
            return DockerError(status, said)
    return DockerError(500, said)


async def _complete(asked: Coroutine[Any, Any, object]) -> None:
    """Await a request even if cancelled. Otherwise it could create a container after the removal."""
    request = asyncio.ensure_future(asked)
    try:
        await asyncio.shield(request)
    except asyncio.CancelledError:
        await asyncio.wait([request])
        if not request.cancelled():
            _ = request.exception()
        raise
