"""Sandbox configs that cannot work with the rest of the configuration: the adapter's address, lifetimes, numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.config.adapter import AdapterConfig
from rl_agent.config.harness import HarnessConfig
from rl_agent.config.rollout import RolloutConfig
from rl_agent.config.schema import Config
from rl_agent.graders.eval_cmd import EvalCmdConfig
from rl_agent.sandboxes.docker.provider import DockerSandboxConfig
from rl_agent.sandboxes.e2b.provider import E2BSandboxConfig
from rl_agent.sandboxes.local.provider import LocalSandboxConfig

if TYPE_CHECKING:
    from rl_agent.config.sandbox import SandboxConfig

HERE = "http://127.0.0.1:3000"


def places(
    sandbox: SandboxConfig, *, bind_host: str = "127.0.0.1", rollout: Any = None, grader: Any = None
) -> list[str]:
    config = Config(
        sandbox=sandbox,
        adapter=AdapterConfig(bind_host=bind_host, advertise_host=sandbox.advertise_host),
        harness=HarnessConfig(),
        rollout=rollout or RolloutConfig(),
        grader=grader or EvalCmdConfig(),
    )
    return [problem.where for problem in sandbox.problems(config)]


@pytest.mark.parametrize("url", [HERE, "http://localhost:3000", "http://[::1]:3000"])
def test_a_gateway_on_this_machine_needs_nothing_else(url: str) -> None:
    assert places(E2BSandboxConfig(api_url=url)) == []
    assert places(E2BSandboxConfig(api_url=url, advertise_host="127.0.0.1")) == []


@pytest.mark.parametrize(
    "sandbox",
    [
        E2BSandboxConfig(),
        E2BSandboxConfig(api_url="https://api.elsewhere.example"),
        DockerSandboxConfig(url="http://docker.example:2375", container_network="training"),
    ],
    ids=["e2b", "server", "docker"],
)
def test_sandboxes_on_other_machines_need_an_address_that_they_reach(sandbox: SandboxConfig) -> None:
    assert places(sandbox) == ["adapter.advertise_host"]
    assert places(replace(sandbox, advertise_host="127.0.0.1")) == ["adapter.advertise_host"]
    named = replace(sandbox, advertise_host="trainer.example")
    assert places(named) == ["adapter.bind_host"]
    assert places(named, bind_host="0.0.0.0") == []


def test_a_rollout_and_its_grading_must_fit_into_a_sandboxs_lifetime() -> None:
    assert places(E2BSandboxConfig(api_url=HERE, max_lifetime_s=60)) == ["sandbox.max_lifetime_s"]
    short, rollout = E2BSandboxConfig(api_url=HERE, max_lifetime_s=100), RolloutConfig(guard_s=50)
    assert places(short, rollout=rollout) == ["sandbox.max_lifetime_s"], "its grading must fit too"
    assert places(short, rollout=rollout, grader=EvalCmdConfig(setup_timeout_s=5, timeout_s=20)) == []


def test_numbers_below_their_minimum_are_problems() -> None:
    sandbox = E2BSandboxConfig(api_url=HERE, boot_concurrency=0, boot_retries=-1, request_retries=-1, max_connections=0)
    names = ("boot_concurrency", "boot_retries", "request_retries", "max_connections")
    assert places(sandbox) == [f"sandbox.{name}" for name in names]


def test_local_sandboxes_need_no_address() -> None:
    assert places(LocalSandboxConfig()) == []
    assert places(LocalSandboxConfig(advertise_host="auto")) == ["adapter.advertise_host", "sandbox.advertise_host"]


def test_containers_on_this_machine_need_no_address_and_those_elsewhere_need_a_network() -> None:
    assert places(DockerSandboxConfig()) == []
    assert places(DockerSandboxConfig(url="http://docker.example:2375")) == ["sandbox.container_network"]
