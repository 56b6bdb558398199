"""Bring-up over a shell: `ssh` and Python are scripts that record what they are asked for."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.cluster.__main__ import main, read
from rl_agent.cluster.hosts import Host, Hosts, parse_hosts
from rl_agent.cluster.marked import VARIABLE, end, marked
from rl_agent.config.bring_up import BringUpConfig
from rl_agent.errors import ConfigError, InfraError

if TYPE_CHECKING:
    from pathlib import Path

SSH = """#!/bin/bash
case $1 in
  unreachable) echo "ssh: connect to host unreachable: No route to host" >&2; exit 255 ;;
  asleep) exec sleep 30 ;;
esac
export ON_HOST=$1
exec "${@:2}"
"""
PYTHON = """#!/bin/bash
echo "$ON_HOST $RL_AGENT_CLUSTER $RAY_AUTH_TOKEN $*" >> @CALLS@
case "$ON_HOST $*" in
  *"marked count"*) cat @STATE@/$ON_HOST 2>/dev/null || echo 0 ;;
  *"marked end"*) echo 3; rm -f @STATE@/$ON_HOST ;;
  "full "*"start --address"*) echo "ray: no space left on device" >&2; exit 1 ;;
  *"scripts start"*) mkdir -p @STATE@; echo 3 > @STATE@/$ON_HOST ;;
  *get-auth-token*) echo 0123abcd ;;
  *get_node_ip_address*) echo 10.0.0.7 ;;
  *ray.nodes*) echo '[{"NodeManagerAddress": "10.0.0.7", "Alive": true, "Labels": {"role": "gpu"}, "Resources": {"CPU": 4.0}}]' ;;
esac
"""


class Fake:
    def __init__(self, folder: Path) -> None:
        self.calls_file, self.state = folder / "calls", folder / "state"
        self.ssh, self.python = folder / "ssh", folder / "python"
        self.ssh.write_text(SSH)
        self.python.write_text(PYTHON.replace("@CALLS@", str(self.calls_file)).replace("@STATE@", str(self.state)))
        for script in (self.ssh, self.python):
            script.chmod(0o755)

    def hosts(self, hosts: str, **more: Any) -> Hosts:
        return Hosts(BringUpConfig(hosts=hosts, ssh=str(self.ssh), python=str(self.python), timeout_s=5.0, **more))

    def calls(self, word: str) -> list[str]:
        return [line for line in self.calls_file.read_text().splitlines() if word in line]

    def up(self) -> list[str]:
        return sorted(path.name for path in self.state.glob("*"))


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def test_hosts_have_names_addresses_and_roles() -> None:
    assert parse_hosts("a,b=10.0.0.2:cpu, c:gpu") == [
        Host(name="a"),
        Host(name="b", address="10.0.0.2", role="cpu"),
        Host(name="c", role="gpu"),
    ]
    for wrong in ("", "a,,b", "a,a"):
        with pytest.raises(ConfigError, match="hosts="):
            parse_hosts(wrong)


async def test_the_first_host_is_the_head_and_the_others_join_it_at_its_address(fake: Fake) -> None:
    assert await fake.hosts("a:gpu,b=10.0.0.2:cpu,c", start_options="--num-gpus=8").up() == "10.0.0.7:6379"
    (head,) = fake.calls("start --head")
    assert head.startswith("a 6379@a 0123abcd ")
    assert "--port=6379" in head
    assert head.endswith("--labels=role=gpu --disable-usage-stats --num-gpus=8")
    joined = sorted(fake.calls("start --address=10.0.0.7:6379"))
    assert [line.split()[:3] for line in joined] == [["b", "6379@b", "0123abcd"], ["c", "6379@c", "0123abcd"]]
    assert "--node-ip-address=10.0.0.2 --labels=role=cpu" in joined[0]
    assert fake.up() == ["a", "b", "c"]


async def test_down_ends_it_on_every_host_and_status_shows_the_nodes(fake: Fake) -> None:
    hosts = fake.hosts("a,b")
    await hosts.up()
    assert await hosts.status() == ["10.0.0.7         alive  role=gpu      CPU=4 GPU=0"]
    assert await hosts.down() == {"a": 3, "b": 3}
    assert fake.up() == []


async def test_every_host_that_failed_is_named_with_what_it_said_and_nothing_stays_up(fake: Fake) -> None:
    with pytest.raises(InfraError) as raised:
        await fake.hosts("a,full,unreachable,c").up()
    assert str(raised.value) == (
        "unreachable: exit code 255: ssh: connect to host unreachable: No route to host"
    )  # asked before anything was started
    with pytest.raises(InfraError, match="full: exit code 1: ray: no space left on device"):
        await fake.hosts("a,full,c").up()
    assert fake.up() == []


async def test_a_host_that_does_not_answer_costs_its_timeout_and_no_more(fake: Fake) -> None:
    hosts = fake.hosts("a,asleep")
    hosts._config.timeout_s = 0.5
    with pytest.raises(InfraError, match=r"asleep: no answer within timeout_s=.*without a password"):
        await hosts.up()


async def test_a_cluster_that_is_up_is_left_alone_but_for_hosts_that_it_lacks(fake: Fake) -> None:
    await fake.hosts("a,b").up()
    with pytest.raises(InfraError, match="a: this cluster is up already"):
        await fake.hosts("a,b").up()
    assert await fake.hosts("a,b,c").up() == "10.0.0.7:6379"  # c is new, or was away
    assert len(fake.calls("scripts start")) == 3
    with pytest.raises(InfraError, match="no space left"):
        await fake.hosts("a,b,c,full").up()
    assert fake.up() == ["a", "b", "c"]
    assert await fake.hosts("a").down() == {"a": 3}
    with pytest.raises(InfraError, match="lost its head"):
        await fake.hosts("a,b").up()


async def test_an_ssh_command_that_does_not_exist_is_named(fake: Fake) -> None:
    hosts = fake.hosts("a")
    hosts._config.ssh = "/nonexistent/ssh"
    with pytest.raises(InfraError, match="`/nonexistent/ssh` cannot be run"):
        await hosts.up()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no valid command given. Use up, down or status."),
        (["start"], "no valid command given. Use up, down or status."),
        (["up", "host=a"], "Did you mean hosts="),
        (["up", "hosts=a", "port=many"], "port"),
    ],
)
def test_a_wrong_command_line_is_one_message_and_exit_code_1(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    assert message in capsys.readouterr().err


def test_options_have_their_types() -> None:
    config = read(["hosts=a,b", "port=7000", "ssh=ip netns exec", "timeout_s=3"])
    assert (config.hosts, config.port, config.ssh, config.timeout_s) == ("a,b", 7000, "ip netns exec", 3.0)


def test_only_processes_with_the_mark_are_ended() -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    ours, theirs = (
        subprocess.Popen(sleeping, env={VARIABLE: mark, "PATH": "/usr/bin"}) for mark in ("1@test", "2@test")
    )
    try:
        assert [process.pid for process in marked("1@test")] == [ours.pid]
        assert end("1@test") == 1
        assert ours.wait(timeout=20) != 0
        assert theirs.poll() is None
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()
