"""Boots containers of Docker, or of Podman's service, as sandboxes.

A container's first process sleeps for the sandbox's lifetime and no longer, so that a killed owner costs no more than that;
the next start removes it before. What it can do to this machine is what Docker lets a container do: its default seccomp filter
and capabilities, less those for devices and raw packets, and no gain from setuid programs.
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
"""What is said of an image that is not given, in the order in which it is looked for. Docker Hub denies access to what it has not."""


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
    """One sandbox."""

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
            raise ConfigError(f"sandbox.url={config.url} is neither unix:///path/to/socket nor http://host:port")
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
        """How a sandbox names this machine; None: not at all, ports are carried."""
        if network is Network.host and self._config.is_local:
            return "127.0.0.1"
        return self._config.advertise_host if self._config.container_network or network is Network.host else None

    async def _connect(self) -> Docker:
        """A client that speaks the service's version of the API. Raises SandboxError when nobody answers there."""
        timeout = aiohttp.ClientTimeout(
            connect=self._config.request_timeout_s, sock_read=self._config.request_timeout_s
        )
        if not self._version:  # asked for once, by a ping: aiodocker asks Podman's slow /version for every client
            try:
                async with (
                    Docker(self._config.url, timeout=timeout) as docker,
                    docker.session.get(f"{docker.docker_host}/_ping", raise_for_status=True) as answer,
                ):
                    self._version = f"v{answer.headers['Api-Version']}"
            except (aiohttp.ClientError, OSError, KeyError) as error:
                raise SandboxError(
                    f"no Docker answers at {self._config.url} ({error}). Remedy: start it (`systemctl start docker`, or `podman system "
                    "service --time=0 unix:///run/podman/podman.sock`), or set sandbox.url to where it is."
                ) from error
        return Docker(self._config.url, timeout=timeout, api_version=self._version)

    async def _require_image(self, docker: Docker, image: str) -> None:
        """Have the image here; fetched once, by whoever comes first. Raises ImageError if there is none."""
        async with self._pulling[image]:
            if image not in self._images:
                await self._image(docker, image)
                self._images.add(image)

    async def _image(self, docker: Docker, image: str) -> None:
        if not IMAGE.fullmatch(image):
            raise self._no_image(image, "that is no image's name.")

        async def find() -> bool:
            try:
                await docker.images.inspect(image)
            except DockerError as error:
                if error.status == 404:
                    return False
                raise
            return True

        if await again(find, what=f"looking for image {image}", retries=self._config.request_retries):
            return
        if not self._config.pull:
            raise self._no_image(image, "and sandbox.pull is false.")

        async def fetch() -> None:
            try:
                async with asyncio.timeout(self._config.pull_timeout_s):
                    await docker.images.pull(image)
            except DockerError as error:
                error = _pull_error(error)
                if failure_of(error) is Failure.MISSING:
                    raise self._no_image(image, str(error)) from error
                raise error from None

        await again(fetch, what=f"fetching image {image}", retries=self._config.request_retries)

    def _no_image(self, image: str, why: str) -> ImageError:
        return ImageError(
            f"Docker at {self._config.url} has no image {image!r}: {why} Remedy: `docker pull` or `docker load` it, set "
            "sandbox.pull=true, or correct the task's image."
        )

    async def _start(self, order: _Order, number: int) -> DockerContainer:
        name = f"rl_agent-{order.label}-{number}"

        async def create() -> None:
            try:
                await _to_its_end(order.docker.containers.create(self._body(order), name=name))
            except DockerError as error:
                if ALREADY not in str(error):  # its first request arrived, only the answer did not
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
        # It reaps what commands leave behind: bash waits for any child while it waits for one.
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
        """Remove the containers of this machine's processes that are gone; returns how many there were."""
        count = 0
        if orphans := self._boots.records.orphans():
            async with await self._connect() as docker:
                for label in orphans:
                    count += await self._remove_labelled(docker, label)
                    self._boots.records.forget(label)
        return count


def _pull_error(error: DockerError) -> DockerError:
    """By what registries say: the status that comes with it is the service's, which gives one for all."""
    said = str(error.message)
    for status, words in PULL_STATUSES.items():
        if any(word in said.lower() for word in words):
            return DockerError(status, said)
    return DockerError(500, said)


async def _to_its_end(asked: Coroutine[Any, Any, object]) -> None:
    """Await a request, also when cancelled: else what it makes would come after its removal was asked for."""
    request = asyncio.ensure_future(asked)
    try:
        await asyncio.shield(request)
    except asyncio.CancelledError:
        await asyncio.wait([request])
        if not request.cancelled():
            _ = request.exception()
        raise
