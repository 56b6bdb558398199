"""What a failed boot says of whom: an image that does not exist is its task's fault, all else is not."""

from __future__ import annotations

import errno
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from rl_agent.config.gateway import GatewayConfig
from rl_agent.errors import ConfigError, ImageError, SandboxError, SetupError
from rl_agent.sandboxes.gateway.server import Gateway
from rl_agent.sandboxes.local import oci
from rl_agent.workspace.workspace import booted
from tests import podman
from tests.local import GATEWAY_KEY, calc_task, e2b_provider, local_provider
from tests.serving import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rl_agent.sandboxes.docker.provider import DockerProvider

NO_IMAGE = [
    "manifest for x:latest not found: manifest unknown: manifest unknown",
    "pull access denied for x, repository does not exist or may require 'docker login'",
    "initializing source docker://x:latest: reading manifest latest in docker.io/library/x: requested access to the resource is denied",
    "no matching manifest for linux/amd64 in the manifest list entries",
    'short-name "x" did not resolve to an alias and no unqualified-search registries are defined',
]
MAY_PASS = [
    "toomanyrequests: You have reached your unauthenticated pull rate limit",
    "net/http: TLS handshake timeout",
    "write /var/lib/docker/tmp/GetImageBlob1: no space left on device",
    "open /var/lib/docker/tmp/x: permission denied",
    "dial tcp: lookup registry-1.docker.io on 10.0.0.2:53: no such host",
    "unauthorized: authentication required",
]


@asynccontextmanager
async def docker(folder: Path, said: str, status: int) -> AsyncIterator[DockerProvider]:
    """A service without images, whose registry says this: as its answer, or (200) in the course of the pull."""

    async def ping(_: web.Request) -> web.Response:
        return web.Response(text="OK", headers={"Api-Version": "1.41"})

    async def image(_: web.Request) -> web.Response:
        return web.json_response({"message": "No such image: x:latest"}, status=404)

    async def create(_: web.Request) -> web.Response:
        if status != 200:
            return web.json_response({"message": said}, status=status)
        return web.Response(text='{"status":"Pulling from library/x"}\n' + json.dumps({"error": said}) + "\n")

    app = web.Application()
    app.add_routes([web.get("/_ping", ping), web.get("/v1.41/images/x/json", image)])
    app.add_routes([web.post("/v1.41/images/create", create)])
    async with serving(app) as port:
        yield podman.docker_provider(f"http://127.0.0.1:{port}", folder, pull=True, request_retries=0)


async def boot(provider: Any, image: str = "x") -> None:
    async with booted(provider, calc_task(image=image), lifetime_s=60):
        pass


@pytest.mark.parametrize("status", [200, 404, 500])
@pytest.mark.parametrize("said", NO_IMAGE)
async def test_an_image_that_no_registry_has_is_the_tasks_fault(said: str, status: int, tmp_path: Path) -> None:
    async with docker(tmp_path, said, status) as provider:
        with pytest.raises(SetupError, match=r"image 'x' of Docker[\s\S]*Run `docker pull`"):
            await boot(provider)


@pytest.mark.parametrize("status", [200, 404, 500])
@pytest.mark.parametrize("said", MAY_PASS)
async def test_a_registry_that_does_not_answer_now_is_infrastructure(said: str, status: int, tmp_path: Path) -> None:
    async with docker(tmp_path, said, status) as provider:
        with pytest.raises(SandboxError) as caught:
            await boot(provider)
    assert said[:40] in str(caught.value)


async def test_a_service_that_is_gone_is_infrastructure(tmp_path: Path) -> None:
    async with docker(tmp_path, "", 200) as provider:
        await (await provider._connect()).close()
    with pytest.raises(SandboxError):
        await boot(provider)
    with pytest.raises(SandboxError, match=r"sandbox\.url=[\s\S]*unreachable[\s\S]*Start it"):
        await boot(podman.docker_provider(f"unix://{tmp_path}/none", tmp_path))


async def test_a_key_that_is_refused_is_infrastructure_and_an_image_that_a_gateway_has_not_is_the_tasks(
    tmp_path: Path,
) -> None:
    local = local_provider(tmp_path / "local")
    config = GatewayConfig(port=0, assets_dir=str(tmp_path / "assets"))
    async with Gateway(local, config, key=GATEWAY_KEY) as opened:
        provider = e2b_provider(opened.url, tmp_path)
        with pytest.raises(SetupError, match="no-such-image"):
            await boot(provider, "no-such-image")
    async with Gateway(local, config, key="e2b_" + "1" * 40) as opened:
        with pytest.raises(SandboxError, match=r"Check the key \(E2B_API_KEY\)"):
            await boot(e2b_provider(opened.url, tmp_path), "host")


async def test_what_no_boot_can_give_is_the_configurations_fault(tmp_path: Path) -> None:
    provider = e2b_provider("http://127.0.0.1:9", tmp_path, max_lifetime_s=30)
    with pytest.raises(ConfigError, match=r"max_lifetime_s is 30[\s\S]*Lower harness"):
        await boot(provider)


def test_a_full_disk_is_no_fault_of_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(oci, "_unpacked", full)
    (tmp_path / "image").mkdir()
    with pytest.raises(SandboxError, match="No space left"):
        oci.root_of(tmp_path / "image", tmp_path / "cache")
    monkeypatch.undo()
    with pytest.raises(ImageError):
        oci.root_of(tmp_path / "image", tmp_path / "cache")
