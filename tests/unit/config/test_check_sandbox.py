"""Where sandboxes are, how they reach the adapter, and whether they live long enough: contradictions found before the start."""

from __future__ import annotations

import pytest

from rl_agent.config.check_sandbox import sandbox_problems
from rl_agent.config.hints import precompose
from rl_agent.config.load import load
from tests.conftest import CONF


def places(*overrides: str) -> list[str]:
    config = load(precompose(CONF, "config", ["sandbox=e2b", *overrides]))
    return [where for where, _, _ in sandbox_problems(config)]


@pytest.mark.parametrize("url", ["http://127.0.0.1:3000", "http://localhost:3000", "http://[::1]:3000"])
def test_a_gateway_on_this_machine_needs_nothing_else(url: str) -> None:
    assert places(f"sandbox.api_url='{url}'") == []
    assert places(f"sandbox.api_url='{url}'", "adapter.advertise_host=127.0.0.1") == []


@pytest.mark.parametrize("url", ["null", "https://api.elsewhere.example"])
def test_sandboxes_elsewhere_need_an_address_that_they_reach(url: str) -> None:
    remote = f"sandbox.api_url='{url}'" if url != "null" else "sandbox.api_url=null"
    assert places(remote) == ["adapter.advertise_host"]
    assert places(remote, "adapter.advertise_host=127.0.0.1") == ["adapter.advertise_host"]
    assert places(remote, "adapter.advertise_host=trainer.example") == ["adapter.bind_host"]
    assert places(remote, "adapter.advertise_host=trainer.example", "adapter.bind_host=0.0.0.0") == []


def test_a_rollout_must_fit_into_a_sandboxs_life() -> None:
    here = "sandbox.api_url='http://127.0.0.1:3000'"
    assert places(here, "sandbox.max_lifetime_s=60") == ["sandbox.max_lifetime_s"]
    short = ("rollout.guard_s=50", "sandbox.max_lifetime_s=100")
    assert places(here, *short) == ["sandbox.max_lifetime_s"], "its grading must fit too"
    assert places(here, *short, "grader.setup_timeout_s=5", "grader.timeout_s=20") == []


def test_numbers_of_boots_are_possible_ones() -> None:
    here = "sandbox.api_url='http://127.0.0.1:3000'"
    assert places(here, "sandbox.boot_concurrency=0", "sandbox.boot_retries=-1") == [
        "sandbox.boot_concurrency",
        "sandbox.boot_retries",
    ]


def test_local_sandboxes_have_no_such_rules() -> None:
    config = load(precompose(CONF, "config", ["sandbox=local"]))
    assert list(sandbox_problems(config)) == []


def docker_places(*overrides: str) -> list[str]:
    config = load(precompose(CONF, "config", ["sandbox=docker", *overrides]))
    return [where for where, _, _ in sandbox_problems(config)]


def test_containers_of_this_machine_need_no_address_and_those_elsewhere_do() -> None:
    assert docker_places() == []
    elsewhere = "sandbox.url='http://docker.example:2375'"
    assert docker_places(elsewhere) == ["sandbox.container_network"]
    joined = (elsewhere, "sandbox.container_network=training")
    assert docker_places(*joined) == ["adapter.advertise_host"]
    assert docker_places(*joined, "adapter.advertise_host=127.0.0.1") == ["adapter.advertise_host"]
    named = (*joined, "adapter.advertise_host=trainer.example")
    assert docker_places(*named) == ["adapter.bind_host"]
    assert docker_places(*named, "adapter.bind_host=0.0.0.0") == []
