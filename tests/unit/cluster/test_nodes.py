"""What nodes must have in common, where processes are placed, and which addresses they get."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from rl_agent.cluster.nodes import differences, digest, facts
from rl_agent.cluster.placement import RayPlacement, selector
from rl_agent.cluster.process import addressed
from rl_agent.config.cluster import ClusterConfig

HERE = {"python": "3.11", "code": "abc", "sentinel": "word"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"sentinel": ""}, ["does not see the run folder /shared/run"]),
        ({"sentinel": "of another file system"}, ["does not see the run folder"]),
        ({"python": "3.12"}, ["runs Python 3.12"]),
        ({"code": "older"}, ["another version of rl_agent"]),
        ({"code": "older", "sentinel": ""}, ["does not see", "another version"]),
    ],
)
def test_a_node_that_cannot_take_part_is_told_why_and_what_to_do(changes: dict[str, str], words: list[str]) -> None:
    found = differences("10.0.0.3", HERE, {**HERE, **changes}, Path("/shared/run"))
    assert len(found) == len(words)
    for message, word in zip(found, words, strict=True):
        assert word in message
        assert "node 10.0.0.3" in message
        assert any(fix in message for fix in ("Put it on", "Use the same version", "Install the same version"))


def test_the_code_is_told_apart_by_its_content_and_its_names(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    first = digest(tmp_path)
    (tmp_path / "a.txt").write_text("not code\n")
    assert digest(tmp_path) == first
    (tmp_path / "a.py").write_text("x = 2\n")
    second = digest(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, digest(tmp_path)}) == 3


def test_a_node_reads_what_was_written_into_the_run_folder(tmp_path: Path) -> None:
    assert facts(str(tmp_path / "sentinel"))["sentinel"] == ""
    (tmp_path / "sentinel").write_text("word")
    assert facts(str(tmp_path / "sentinel"))["sentinel"] == "word"


def test_workers_go_elsewhere_when_their_nodes_are_gone_and_servers_and_ranks_do_not() -> None:
    labelled = ClusterConfig(worker_nodes="role=cpu", engine_nodes="role=gpu", trainer_nodes="role=gpu")
    place = RayPlacement(labelled, ranks=2)
    assert place.worker() == {
        "num_cpus": 0.0,
        "label_selector": {"role": "cpu"},
        "fallback_strategy": [{"label_selector": {}}],
    }
    assert place.server(0) == {"num_cpus": 0, "num_gpus": 0.0, "label_selector": {"role": "gpu"}}
    assert place.rank(1) == {"num_cpus": 0.0, "num_gpus": 0.0, "label_selector": {"role": "gpu"}}
    strict = RayPlacement(ClusterConfig(worker_nodes="role=cpu", workers_elsewhere=False), ranks=1)
    assert "fallback_strategy" not in strict.worker()
    assert RayPlacement(ClusterConfig(), ranks=1).worker() == {"num_cpus": 0.0}
    assert selector("zone=a=b") == {"zone": "a=b"}


@dataclass(slots=True, kw_only=True)
class Node:
    host: str | None


def test_only_auto_becomes_the_own_address() -> None:
    assert addressed(Node(host="auto"), "host", "10.0.0.9") == Node(host="10.0.0.9")
    assert addressed(Node(host="10.1.1.1"), "host", "10.0.0.9") == Node(host="10.1.1.1")
    assert addressed(Node(host=None), "host", "10.0.0.9") == Node(host=None)
    assert addressed({"host": "auto"}, "port", "x") == {"host": "auto"}
