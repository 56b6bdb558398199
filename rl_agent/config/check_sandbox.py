"""Contradictions between where sandboxes are and how they are to reach the adapter, and between their lifetime and the budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rl_agent.config.grader import grading_s
from rl_agent.config.node import get
from rl_agent.config.rollout import GUARD_MARGIN_S, guard_s
from rl_agent.config.sandbox import (
    DockerSandboxConfig,
    E2BSandboxConfig,
    LocalSandboxConfig,
    NetworkName,
    RemoteSandboxConfig,
)
from rl_agent.ports import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.schema import Config


def sandbox_problems(config: Config) -> Iterator[tuple[str, str, str]]:
    """Place, fault and remedy of each."""
    sandbox = config.sandbox
    if isinstance(sandbox, RemoteSandboxConfig | LocalSandboxConfig):
        for name, least in (
            ("boot_concurrency", 1),
            ("boot_retries", 0),
            ("request_retries", 0),
            ("max_connections", 1),
        ):
            if (value := getattr(sandbox, name, least)) < least:
                yield f"sandbox.{name}", f"{value} is less than {least}.", f"set it to at least {least}"
    if isinstance(sandbox, E2BSandboxConfig):
        yield from _reach(config, sandbox)
        yield from _lifetime(config, sandbox)
    if isinstance(sandbox, DockerSandboxConfig):
        yield from _reach_docker(config, sandbox)


def _lifetime(config: Config, sandbox: E2BSandboxConfig) -> Iterator[tuple[str, str, str]]:
    needed = guard_s(config.rollout, config.harness, config.grader)
    setup_s, tests_s = get(config.grader, "setup_timeout_s"), get(config.grader, "timeout_s")
    grading = 0.0 if setup_s is None or tests_s is None else grading_s(setup_s, tests_s)
    if needed > sandbox.max_lifetime_s:
        yield (
            "sandbox.max_lifetime_s",
            f"a rollout may take {needed:g} s (agent, grading and {GUARD_MARGIN_S:g} s), a sandbox lives {sandbox.max_lifetime_s:g} s.",
            "lower harness.time_budget_s or grader.timeout_s, or raise it if the account grants more",
        )
    elif grading > sandbox.max_lifetime_s:
        yield (
            "sandbox.max_lifetime_s",
            f"a grading may take {grading:g} s (set-up and tests), a sandbox lives {sandbox.max_lifetime_s:g} s.",
            "lower grader.setup_timeout_s or grader.timeout_s, or raise it if the account grants more",
        )


def _reach_docker(config: Config, sandbox: DockerSandboxConfig) -> Iterator[tuple[str, str, str]]:
    """A container without a network gets the adapter's port carried inside, by a Docker of this machine only."""
    host, bound = sandbox.advertise_host, getattr(config.adapter, "bind_host", None)
    if sandbox.container_network is None and sandbox.url.startswith("unix:"):
        return
    if sandbox.container_network is None and sandbox.network != NetworkName.host:
        yield (
            "sandbox.container_network",
            f"containers of {sandbox.url} are on another machine, and without a network they do not reach the adapter.",
            "set it to a network of Docker's, with adapter.advertise_host, adapter.bind_host=0.0.0.0 and adapter.port",
        )
    elif host is None or is_loopback(host):
        yield (
            "adapter.advertise_host",
            f"containers on network {sandbox.container_network or 'host'} have no address of the adapter ({host}).",
            "set it to a name or address of this machine that they reach",
        )
    elif is_loopback(bound):
        yield (
            "adapter.bind_host",
            f"containers are told adapter.advertise_host={host}, but the adapter listens on {bound} only.",
            "adapter.bind_host=0.0.0.0",
        )


def _reach(config: Config, sandbox: E2BSandboxConfig) -> Iterator[tuple[str, str, str]]:
    """A sandbox on another machine cannot reach this one's loopback; a gateway on this machine carries it there."""
    if is_loopback(urlsplit(sandbox.api_url or "").hostname):
        return
    host, bound = sandbox.advertise_host, getattr(config.adapter, "bind_host", None)
    if host is None:
        yield (
            "adapter.advertise_host",
            f"sandboxes of {sandbox.api_url or 'E2B'} are on other machines and have no address of the adapter.",
            "set it to a name or address of this machine that they reach, with adapter.bind_host=0.0.0.0 and adapter.port; or "
            "run `python -m rl_agent.sandboxes.gateway` here and set sandbox.api_url to it",
        )
    elif is_loopback(host):
        yield (
            "adapter.advertise_host",
            f"{host} is the sandbox's own loopback, and sandboxes of {sandbox.api_url or 'E2B'} are on other machines.",
            "set it to a name or address of this machine that they reach",
        )
    elif is_loopback(bound):
        yield (
            "adapter.bind_host",
            f"sandboxes are told adapter.advertise_host={host}, but the adapter listens on {bound} only.",
            "adapter.bind_host=0.0.0.0",
        )
