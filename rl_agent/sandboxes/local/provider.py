"""Provider of sandboxes on this machine: overlayfs over an image, with bubblewrap as the first process.

A sandbox leaves nothing behind, even if this process is killed: the kernel removes its mount namespace and its pid namespace
with their last process. It does not protect against exploits of the kernel.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import secrets
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.config.plug_in import Problem
from rl_agent.config.sandbox import Network, SandboxConfig
from rl_agent.sandboxes.base import limits_of, require_sources
from rl_agent.sandboxes.local import images
from rl_agent.sandboxes.local import seccomp as filters
from rl_agent.sandboxes.local.boot import Boot, BootRequest, bubblewrap
from rl_agent.sandboxes.local.helper import Helper, machine_must
from rl_agent.sandboxes.local.limits import ControlGroups, Controllers, remove_group, weigh
from rl_agent.sandboxes.local.sandbox import LocalSandbox
from rl_agent.sandboxes.state import BootGate, is_dead, owner_tag, remove_dead, remove_tree, state_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from rl_agent.config.schema import Config
    from rl_agent.sandboxes.base import Asset, Limits


log = logging.getLogger(__name__)


class Storage(StrEnum):
    """Where a local sandbox keeps the files that it writes."""

    memory = "memory"
    """A memory file system. Fastest, and freed with the sandbox."""
    disk = "disk"
    """A folder below `state_dir`, which must not itself be on an overlay file system."""


@dataclass(kw_only=True)
class LocalSandboxConfig(SandboxConfig):
    """Sandboxes on this machine: overlayfs, bubblewrap, namespaces. Runs as root, or without root where user namespaces work."""

    storage: Storage = Storage.memory
    """`state_dir` also holds the mount points and, with `storage: disk`, the files that sandboxes write."""
    disk_mb: int = 4096
    """Maximum size of the files that a sandbox writes with `storage: memory`."""
    memory_mb: int | None = 8192
    processes: int | None = 1024
    nice: int = 10
    """CPU weight of a sandbox: that of one process with this niceness. Keeps a core for the engine on a shared machine."""
    boot_timeout_s: float = 60.0
    visible: list[str] = field(default_factory=list)
    """Folders of this machine that image `host` also shows, read-only."""
    images_dir: str | None = None
    """Cache of unpacked container images (`oci:`); null: ~/.cache/rl_agent/images."""
    seccomp: bool = True
    """Block system calls that administer the machine or widen the kernel's attack surface (x86-64 only)."""

    @override
    def build(self) -> LocalProvider:
        return LocalProvider(self)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from super().problems(config)
        for key, host in (
            ("adapter.advertise_host", config.adapter.advertise_host),
            ("sandbox.advertise_host", self.advertise_host),
        ):
            if host is not None:
                what = f"{host}: local sandboxes reach the adapter of their machine through a forwarded port."
                yield Problem(key, what, "Leave it null.")


class LocalProvider:
    """See `SandboxProvider`. Without root, sandboxes are less isolated: see `images.WITHOUT_ROOT`."""

    def __init__(self, config: LocalSandboxConfig) -> None:
        self._config = config
        self._gate: BootGate | None = None
        self._seccomp = (filters.program() or b"") if config.seccomp else b""
        self._images_dir = None if config.images_dir is None else Path(config.images_dir).expanduser()
        self._alone = os.geteuid() != 0
        self._made: tuple[Path, images.Layout] | None = None
        self._making = asyncio.Lock()
        self._layouts: dict[str, images.Layout] = {}
        self._helper: Helper | None = None
        self._helper_users = 0
        self._shared_groups = ControlGroups()
        self._controllers: Controllers | None = None

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
    ) -> AsyncIterator[LocalSandbox]:
        """See `SandboxProvider.boot`."""
        require_sources(assets)
        network = network or self._config.network
        name = f"{owner_tag()}-{secrets.token_hex(6)}"
        deadline = time.monotonic() + lifetime_s
        with machine_must("start the helper of sandboxes"):
            helper = self._acquire_helper()
        folder = state_folder(self._config.state_dir) / name
        groups = ControlGroups()
        try:
            with machine_must("create the sandbox's folder"):
                folder.mkdir(mode=0o700)
            layout = await self._layout(image)
            binds = [*layout.binds, *(layout.host_network_binds if network is Network.host else ())]
            binds += [(str(asset.source), asset.target) for asset in assets]
            groups = self._groups(name, limits_of(self._config) if limits is None else limits)
            request = BootRequest(
                folder=folder,
                layout=replace(layout, binds=binds),
                alone=self._alone,
                network=network,
                bwrap=bubblewrap(),
                cgroups=[str(path) for path in groups.folders],
                tmpfs_mb=self._config.disk_mb if self._config.storage is Storage.memory else None,
            )
            async with AsyncExitStack() as stack:
                with machine_must("boot a sandbox"):
                    async with self._turns().turn():
                        booting = Boot(helper, request, timeout_s=self._config.boot_timeout_s)
                        processes = await stack.enter_async_context(booting)
                sandbox = LocalSandbox(
                    name=name,
                    helper=helper,
                    processes=processes,
                    groups=groups,
                    network=network,
                    nice=self._config.nice,
                    max_output_bytes=self._config.max_output_bytes,
                    seccomp=self._seccomp,
                    deadline=deadline,
                )
                async with sandbox:
                    yield sandbox
        finally:
            folders = [folder, *self._release_helper()]
            await asyncio.shield(asyncio.to_thread(_clean, folders, groups))

    async def sweep(self) -> int:
        """Remove the run folders and control groups of dead processes; return the number of sandboxes."""
        count = await asyncio.to_thread(remove_dead, state_folder(self._config.state_dir))
        for group in self._cgroups().leftovers():
            if is_dead(group.name.removeprefix("rl_agent-")):
                await asyncio.to_thread(remove_group, group)
        return count

    async def _layout(self, image: str) -> images.Layout:
        if image == "host" and self._alone:
            async with self._making:
                if self._made is None:
                    folder = state_folder(self._config.state_dir) / f"{owner_tag()}-{secrets.token_hex(6)}-host"
                    self._made = folder, await asyncio.to_thread(images.host_without_root, folder, self._config.visible)
            return self._made[1]
        if image not in self._layouts:
            if image.startswith("oci:"):  # unpacking is slow
                layout = await asyncio.to_thread(images.resolve, image, images_dir=self._images_dir)
            else:
                layout = images.resolve(image, visible=self._config.visible)
            self._layouts[image] = layout
        return self._layouts[image]

    def _cgroups(self) -> Controllers:
        if self._controllers is None:
            self._controllers = Controllers.find()
            log.info("local sandboxes: %s", self._controllers.describe())
            if self._alone:
                log.warning(images.WITHOUT_ROOT)
        return self._controllers

    def _turns(self) -> BootGate:
        """Return the boot gate. Its folder does not depend on `state_dir`, because all runs share the machine's cores."""
        if self._gate is None:
            folder = state_folder(str(Path(tempfile.gettempdir(), f"rl_agent-boots-{os.getuid()}")))
            self._gate = BootGate(folder, concurrency=self._config.boot_concurrency, per_s=self._config.boots_per_s)
        return self._gate

    def _groups(self, name: str, bounds: Limits) -> ControlGroups:
        groups = self._cgroups().for_sandbox(name, bounds, nice=self._config.nice)
        if self._alone and bounds.processes is not None:
            groups = replace(groups, rlimits={**groups.rlimits, resource.RLIMIT_NPROC: bounds.processes})
        return groups

    def _acquire_helper(self) -> Helper:
        """Return the helper process, which runs while this provider has sandboxes."""
        if self._helper is None:
            tag = f"{owner_tag()}-{secrets.token_hex(4)}"
            self._shared_groups = self._cgroups().shared(tag)
            self._helper = Helper(cgroup_dirs=self._shared_groups.folders)
        self._helper_users += 1
        weigh(self._shared_groups, nice=self._config.nice, sandboxes=self._helper_users)
        return self._helper

    def _release_helper(self) -> list[Path]:
        """Stop the helper after the last sandbox; return folders to remove."""
        self._helper_users -= 1
        if self._helper_users > 0 or self._helper is None:
            weigh(self._shared_groups, nice=self._config.nice, sandboxes=self._helper_users)
            return []
        self._helper.stop()
        self._helper = None
        self._shared_groups.remove()
        made, self._made = self._made, None
        return [] if made is None else [made[0]]


def _clean(folders: Sequence[Path], groups: ControlGroups) -> None:
    groups.remove()
    for folder in folders:
        remove_tree(folder)
