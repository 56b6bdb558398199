"""Provider that boots sandboxes through E2B's SDK."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import math
import shlex
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from typing_extensions import override

from rl_agent import secrets
from rl_agent.config.plug_in import Problem, at_least
from rl_agent.config.sandbox import Network, RemoteSandboxConfig, is_loopback
from rl_agent.errors import ConfigError, ImageError
from rl_agent.sandboxes.base import Limits, SandboxLostError, limits_of
from rl_agent.sandboxes.e2b.remote import E2BRemote, Endpoint
from rl_agent.sandboxes.gateway.wire import ASSETS_KEY, LIMITS_KEY
from rl_agent.sandboxes.scripted.boots import Boots
from rl_agent.sandboxes.scripted.failures import Failure, again, failure_of
from rl_agent.sandboxes.scripted.sandbox import ScriptedSandbox
from rl_agent.sandboxes.state import LABEL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from rl_agent.config.schema import Config
    from rl_agent.sandboxes.base import Asset

KEY: Final = "E2B_API_KEY"
CONNECTIONS: Final = "E2B_MAX_CONNECTIONS"
GRANTED_SLACK_S: Final = 5.0
EVERYWHERE: Final = "0.0.0.0/0"
LOOK_S: Final = 60.0


@dataclass(kw_only=True)
class E2BSandboxConfig(RemoteSandboxConfig):
    """Sandboxes of E2B, or of a server that speaks its protocol. The API key is the environment variable E2B_API_KEY."""

    api_url: str | None = None
    """URL of the control plane; null: E2B's."""
    sandbox_url: str | None = None
    """URL of the sandboxes; null: as the control plane says, or `api_url` if that is on this machine."""
    domain: str | None = None
    """Domain of a self-hosted E2B; null: e2b.app."""
    image_metadata_key: str | None = None
    """Metadata key that carries the task's image; null: the image is the template name."""
    template: str = "base"
    """Template to boot if `image_metadata_key` is set."""
    metadata: dict[str, str] = field(default_factory=dict)
    """Metadata sent with every boot, for routing."""
    metadata_file: str | None = None
    """JSON file with more metadata: one object of strings."""
    allow_out: list[str] = field(default_factory=list)
    """Addresses that sandboxes can reach with `network: none`, besides `advertise_host`."""
    assets_in_image: bool = False
    """The images contain the agent CLIs (/opt/rl_agent/bin). The provider checks for them instead of uploading them."""
    max_connections: int = 1000
    """Maximum connections of the SDK per address. Every running command holds one, or one HTTP/2 stream."""
    max_lifetime_s: float = 86400.0
    """Maximum sandbox lifetime that the account allows (E2B: an hour on the free plan, a day on paid plans)."""

    @property
    def has_local_gateway(self) -> bool:
        """Return whether `api_url` is on this machine: a gateway, which forwards the adapter's port into its sandboxes."""
        return is_loopback(urlsplit(self.api_url or "").hostname)

    @override
    def build(self) -> E2BProvider:
        return E2BProvider(self)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from super().problems(config)
        yield from at_least(1, sandbox__max_connections=self.max_connections)
        if not self.has_local_gateway:
            hint = " Or run `python -m rl_agent.sandboxes.gateway` on this machine and set sandbox.api_url to it."
            yield from self.unreachable_adapter(config, sandboxes=f"sandboxes of {self.api_url or 'E2B'}", hint=hint)
        rollout_s = config.agent_sandbox_s
        grader_s = config.grader.sandbox_lifetime_s
        if rollout_s > self.max_lifetime_s:
            yield Problem(
                "sandbox.max_lifetime_s",
                f"{self.max_lifetime_s:g} s is less than the {rollout_s:g} s that an agent may take.",
                "Lower harness.time_budget_s or rollout.workspace_timeout_s, or raise it if the account allows more.",
            )
        elif grader_s > self.max_lifetime_s:
            yield Problem(
                "sandbox.max_lifetime_s",
                f"{self.max_lifetime_s:g} s is less than the {grader_s:g} s that grading may take (setup and tests).",
                "Lower grader.setup_timeout_s or grader.timeout_s, or raise it if the account allows more.",
            )


@dataclass(slots=True, kw_only=True)
class _Order:
    """State of one sandbox, from the first boot attempt to its end."""

    image: str
    label: str
    lifetime_s: float
    uploads: Sequence[Asset]
    there: Sequence[Asset]
    """Assets that the image should contain."""
    request: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    """Idempotency key of the attempt."""
    sandbox_id: str | None = None
    unheard: bool = False
    """Requested, without an answer so far."""


class E2BProvider:
    """See `SandboxProvider`."""

    def __init__(self, config: E2BSandboxConfig) -> None:
        self._config = config
        key = secrets.require(KEY, "sandbox=e2b")
        given = {
            "api_key": key,
            "api_url": config.api_url,
            "sandbox_url": config.sandbox_url or (config.api_url if config.has_local_gateway else None),
            "domain": config.domain,
            "request_timeout": config.request_timeout_s,
            "retries": config.request_retries,
            "debug": False,
        }
        if "e2b" not in sys.modules:  # the SDK reads the variable at import
            secrets.set_for_children(CONNECTIONS, str(config.max_connections))
        self._sdk = _sdk()
        self._connection = {name: value for name, value in given.items() if name in _connection_options()}
        self._endpoint = Endpoint(
            config.api_url, key=key, timeout_s=config.request_timeout_s, retries=config.request_retries
        )
        self._boots = Boots(config, "e2b")
        self._metadata = {**_from_file(config.metadata_file), **config.metadata}
        self._allow_out = [*config.allow_out, *([] if config.advertise_host is None else [config.advertise_host])]

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
        if lifetime_s > self._config.max_lifetime_s:
            raise ConfigError(
                f"sandbox.max_lifetime_s is {self._config.max_lifetime_s:g}, but a sandbox is needed for {lifetime_s:g} s. Lower "
                "harness.time_budget_s, grader.timeout_s or rollout.guard_s, or raise it if the account allows more."
            )
        metadata = {**self._metadata, **(labels or {})}
        chosen = limits_of(self._config) if limits is None else limits
        ours = await self._endpoint.is_gateway()
        if ours and chosen != Limits():
            bounds = {"memory_mb": chosen.memory_mb, "processes": chosen.processes, "cpus": chosen.cpus}
            metadata[LIMITS_KEY] = json.dumps({name: value for name, value in bounds.items() if value is not None})
        there = assets if self._config.assets_in_image else ()
        assets = () if self._config.assets_in_image else assets
        if ours and assets:
            metadata[ASSETS_KEY] = await self._endpoint.store(assets)
        request = self._request(image, metadata, network or self._config.network, lifetime_s)
        label = self._boots.records.of_boot()
        order = _Order(image=image, label=label, lifetime_s=lifetime_s, uploads=() if ours else assets, there=there)
        order.request = {**request, "metadata": {**request["metadata"], LABEL: label}}
        end = functools.partial(self._end, order)
        async with self._boots.recorded(label, end):
            yield await self._boots.first(functools.partial(self._boot, order), end)

    def _request(self, image: str, metadata: Mapping[str, str], network: Network, lifetime_s: float) -> dict[str, Any]:
        key = self._config.image_metadata_key
        request: dict[str, Any] = {
            "template": image if key is None else self._config.template,
            "metadata": {**metadata, **({} if key is None else {key: image})},
            "timeout": math.ceil(lifetime_s),
            "allow_internet_access": network is Network.host,
        }
        if network is Network.none and self._allow_out:
            request["allow_internet_access"] = True
            request["network"] = {"allow_out": list(self._allow_out), "deny_out": [EVERYWHERE]}
        return request

    async def _boot(self, order: _Order, number: int) -> ScriptedSandbox:
        order.key = f"{order.label}-{number}"
        remote = await self._create(order)
        deadline = time.monotonic() + order.lifetime_s
        sandbox = ScriptedSandbox(
            E2BRemote(
                remote,
                endpoint=self._endpoint,
                advertise_host=self._config.advertise_host,
                request_timeout_s=self._config.request_timeout_s,
            ),
            deadline=deadline,
            max_output_bytes=self._config.max_output_bytes,
            retries=self._config.request_retries,
        )
        await self._require_lifetime(remote, order.request["timeout"])
        await sandbox.set_up()
        for asset in order.uploads:
            await sandbox.put_asset(asset)
        if order.there:
            await _require_there(sandbox, order)
        return sandbox

    async def _create(self, order: _Order) -> Any:
        """Create the sandbox of this attempt. Repeated requests return the same one."""
        options = {name: value for name, value in order.request.items() if name in _create_options()}
        connection: dict[str, Any] = dict(self._connection)
        if "idempotency_key" in _create_options():
            options["idempotency_key"] = order.key
        else:
            connection["headers"] = {"Idempotency-Key": order.key}

        async def create() -> Any:
            try:
                return await self._sdk.create(**options, **connection)
            except Exception as error:
                order.unheard = order.unheard and failure_of(error) is Failure.TRANSIENT
                if failure_of(error) is Failure.MISSING:
                    raise ImageError(
                        f"image {order.image!r} of the sandbox provider: not found: {error} Build a template of that name, or set "
                        "sandbox.image_metadata_key if the endpoint takes images by metadata."
                    ) from error
                raise

        order.unheard = True
        what = f"the boot of a sandbox with image {order.image!r}"
        remote = await again(create, what=what, retries=self._config.request_retries)
        order.sandbox_id, order.unheard = str(remote.sandbox_id), False
        return remote

    async def _require_lifetime(self, remote: Any, asked_s: int) -> None:
        info = await again(
            remote.get_info, what=f"the lifetime of sandbox {remote.sandbox_id}", retries=self._config.request_retries
        )
        if info.end_at is None or info.started_at is None:
            return
        granted = (info.end_at - info.started_at).total_seconds()
        if granted < asked_s - GRANTED_SLACK_S:
            raise ConfigError(
                f"sandbox {remote.sandbox_id} was granted {granted:.0f} s of the {asked_s} s that a rollout may take. Lower "
                "harness.time_budget_s and grader.timeout_s, or use an account that allows more."
            )

    async def _end(self, order: _Order) -> None:
        """Remove the sandbox of the last attempt, if there is one."""
        if order.unheard:  # the boot may still be running; its key identifies the sandbox
            await self._create(order)
        if order.sandbox_id is not None:
            await self._remove(order.sandbox_id)
            order.sandbox_id = None

    async def _remove(self, sandbox_id: str) -> None:
        async def kill() -> None:
            await self._sdk.kill(sandbox_id, **self._connection)

        with contextlib.suppress(SandboxLostError):  # it has ended by itself
            await again(kill, what=f"the end of sandbox {sandbox_id}", retries=self._config.request_retries)

    async def _labelled(self, label: str) -> list[str]:
        async def find() -> list[str]:
            from e2b import SandboxQuery  # noqa: PLC0415 (a heavy import)

            pages = self._sdk.list(query=SandboxQuery(metadata={LABEL: label}), **self._connection)
            found: list[str] = []
            while pages.has_next:
                found += [info.sandbox_id for info in await pages.next_items()]
            return found

        return await again(find, what=f"the look-up of sandbox {label}", retries=self._config.request_retries)

    async def sweep(self) -> int:
        """Remove the sandboxes of this machine's dead processes; return their number."""
        count = 0
        for label in self._boots.records.orphans():
            for sandbox_id in await self._labelled(label):
                await self._remove(sandbox_id)
                count += 1
            self._boots.records.forget(label)
        return count


async def _require_there(sandbox: ScriptedSandbox, order: _Order) -> None:
    look = " && ".join(f"ls -d -- {shlex.quote(asset.target)}" for asset in order.there)
    found = await sandbox.exec(look, user="root", timeout=LOOK_S)
    if found.exit_code != 0:
        raise ImageError(
            f"sandbox.assets_in_image: image {order.image!r} lacks the CLI: {found.stderr.decode(errors='replace').strip()}. Build "
            "the image with it, or set sandbox.assets_in_image=false to upload it."
        )


def _sdk() -> Any:
    from e2b import AsyncSandbox  # noqa: PLC0415 (a heavy import)

    return AsyncSandbox


def _create_options() -> frozenset[str]:
    return frozenset(inspect.signature(_sdk().create).parameters)


def _connection_options() -> frozenset[str]:
    from e2b import ConnectionConfig  # noqa: PLC0415

    return frozenset(inspect.signature(ConnectionConfig.__init__).parameters)


def _from_file(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        value = json.loads(Path(path).expanduser().read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"sandbox.metadata_file={path}: cannot read it as JSON: {error}") from error
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ConfigError(f"sandbox.metadata_file={path}: not a JSON object with string values")
    return value
