"""What containers leave behind, and what is said when there is no Docker."""

from __future__ import annotations

# ruff: noqa: ASYNC220
import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiodocker import Docker
from aiodocker.containers import DockerContainer, DockerContainers
from e2b import AsyncSandbox, CommandExitException

from rl_agent.config.gateway import GatewayConfig
from rl_agent.errors import ConfigError, ImageError, SandboxError
from rl_agent.sandboxes.base import SandboxLostError
from rl_agent.sandboxes.gateway.__main__ import configuration
from rl_agent.sandboxes.gateway.server import Gateway
from tests import podman
from tests.local import GATEWAY_KEY

if TYPE_CHECKING:
    from rl_agent.sandboxes.docker.provider import DockerProvider


@pytest.fixture
def url(podman_url: str | None) -> str:
    if podman_url is None:
        pytest.skip(str(podman.missing()))
    return podman_url


@pytest.fixture
def provider(url: str, tmp_path: Path) -> DockerProvider:
    return podman.docker_provider(url, tmp_path)


async def containers(url: str) -> list[str]:
    async with Docker(url, api_version="v1.41") as docker, asyncio.timeout(30):
        return [container["Names"][0] for container in await docker.containers.list(all=True)]


def records(folder: Path) -> list[str]:
    return [path.name for path in (folder / "docker" / "docker" / "live").iterdir()]


async def test_a_missing_service_is_one_clear_error(tmp_path: Path) -> None:
    for url in (f"unix://{tmp_path}/none", "http://127.0.0.1:9"):
        provider = podman.docker_provider(url, tmp_path)
        with pytest.raises(SandboxError, match=r"sandbox\.url=[\s\S]*unreachable[\s\S]*Start it"):
            async with provider.boot("x", lifetime_s=60):
                pass
    with pytest.raises(ConfigError, match=r"sandbox\.url"):
        podman.docker_provider("ftp://x", tmp_path)


@pytest.mark.parametrize("image", ["", "../containers/json?x", "a b", "/etc", "a/../b", "a\nb"])
async def test_what_is_no_images_name_is_not_asked_for(image: str, provider: DockerProvider) -> None:
    with pytest.raises(ImageError, match=r"invalid name\. Run `docker pull`"):
        async with provider.boot(image, lifetime_s=60):
            pass


async def test_a_cancelled_boot_leaves_no_container(url: str, provider: DockerProvider, tmp_path: Path) -> None:
    for delay in (0.02, 0.1, 0.2):
        try:
            async with asyncio.timeout(delay), provider.boot(podman.IMAGE, lifetime_s=60):
                await asyncio.sleep(5)
        except TimeoutError:
            pass
        assert await containers(url) == []
    assert records(tmp_path) == []


async def test_a_container_that_dies_is_lost_at_once(url: str, provider: DockerProvider) -> None:
    async with provider.boot(podman.IMAGE, lifetime_s=60) as sandbox:
        async with Docker(url, api_version="v1.41") as docker, asyncio.TaskGroup() as group:

            async def kill() -> None:
                await asyncio.sleep(0.5)
                await docker.containers.container(sandbox.id).delete(force=True)

            group.create_task(kill())
            started = time.monotonic()
            with pytest.raises(SandboxLostError):
                await sandbox.exec("sleep 50", timeout=60)
        for call in (sandbox.read_file("/etc/passwd"), sandbox.write_file("/tmp/x", b"x"), sandbox.expose(9)):
            with pytest.raises(SandboxError):
                await call
        assert time.monotonic() - started < 30


async def test_a_boot_whose_answer_was_lost_is_asked_for_again_and_gives_one_container(
    url: str, provider: DockerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = DockerContainers.create
    lost: list[DockerContainer] = []

    async def create(self: DockerContainers, *rest: Any, **more: Any) -> DockerContainer:
        container = await real(self, *rest, **more)
        if not lost:
            lost.append(container)
            raise aiohttp.ServerDisconnectedError
        return container

    monkeypatch.setattr(DockerContainers, "create", create)
    async with provider.boot(podman.IMAGE, lifetime_s=60) as sandbox:
        assert lost
        assert await containers(url) == [f"/{sandbox.id}"]
    assert await containers(url) == []


OWNER = """
import asyncio, sys
from pathlib import Path
from rl_agent.config.options import register
from rl_agent.sandboxes.gateway.__main__ import configuration
from rl_agent.sandboxes.gateway.server import Gateway
from tests import podman
from tests.local import GATEWAY_KEY
async def main():
    async with podman.docker_provider(sys.argv[1], Path(sys.argv[2])).boot(podman.IMAGE, lifetime_s=600):
        print("up", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_what_a_killed_owner_left_is_removed_by_the_next_start(
    url: str, provider: DockerProvider, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", OWNER, url, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as owner:
        assert owner.stdout is not None
        assert await asyncio.to_thread(owner.stdout.readline) == b"up\n"
        owner.kill()
    assert len(await containers(url)) == 1
    async with provider.boot(podman.IMAGE, lifetime_s=60) as living:
        assert await provider.sweep() == 1
        assert await containers(url) == [f"/{living.id}"]
    assert records(tmp_path) == []


async def test_the_gateway_serves_containers_to_e2bs_client(url: str, provider: DockerProvider, tmp_path: Path) -> None:
    config = GatewayConfig(port=0, images={"base": podman.IMAGE}, assets_dir=str(tmp_path / "assets"))
    async with Gateway(provider, config, key=GATEWAY_KEY) as opened:
        sandbox = await AsyncSandbox.create(
            "base", timeout=120, api_url=opened.url, sandbox_url=opened.url, api_key=GATEWAY_KEY
        )
        await sandbox.files.write("/tmp/x", "content")
        shown = await sandbox.commands.run("id -un; cat /tmp/x", timeout=60)
        assert shown.stdout == "agent\ncontent"
        with pytest.raises(CommandExitException):
            await sandbox.commands.run("exit 3", timeout=60)
        assert await sandbox.kill()
    assert await containers(url) == []


def test_the_gateways_command_line_takes_every_provider() -> None:
    for name in ("local", "docker", "e2b"):
        root = configuration([f"sandbox={name}"])
        assert getattr(root.sandbox, "advertise_host", None) is None
