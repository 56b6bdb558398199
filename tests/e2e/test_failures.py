"""What a user sees when something is wrong: one line that names the thing, the place and the remedy; and nothing is left."""

from __future__ import annotations

import json
import shutil
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from rl_agent.sandboxes.state import state_folder
from rl_agent.tasks.rows import RowsConfig
from tests.e2e.command import Command
from tests.local import needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [needs_root, pytest.mark.e2e, pytest.mark.slow]

LONG = pytest.mark.long
WITHOUT_VLLM = ("engine=demonstrator",)
ROW: dict[str, Any] = {
    "prompt": "Fix it.",
    "metadata": {"image": "host", "workdir": "/workspace/repo", "eval_cmd": "true"},
}


def failing(tmp_path: Path, *overrides: str, timeout: float = 120) -> list[str]:
    """The error lines of a run that must fail, in order, without a traceback and without anything left behind."""
    state = tmp_path / "state"
    run = Command(
        output=tmp_path / "run",
        overrides=("debug=fast", "tracking=none", f"sandbox.state_dir={state}", *overrides),
    )
    done = run.run(timeout)
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert errors, done.stderr
    assert not state.exists() or not list(state_folder(str(state)).iterdir()), "sandbox folders left behind"
    mounted = [part.mountpoint for part in psutil.disk_partitions(all=True) if str(tmp_path) in part.mountpoint]
    assert not mounted, f"mounts left behind: {mounted}"
    return errors


def started(tmp_path: Path) -> bool:
    """Whether the run had begun to start its processes, which takes long."""
    return (tmp_path / "run" / "logs").is_dir() and any((tmp_path / "run" / "logs").iterdir())


@contextmanager
def busy_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("trainer.pipeline_parallel=3", ("pipeline_parallel=3", "2 layers")),
        pytest.param("trainer.sequence_parallel=true", ("sequence_parallel", "tensor_parallel > 1"), marks=LONG),
        pytest.param("trainer.expert_parallel=2", ("expert_parallel=2", "must divide"), marks=LONG),
    ],
)
def test_a_layout_that_the_model_cannot_have(tmp_path: Path, layout: str, words: tuple[str, ...]) -> None:
    (error,) = failing(tmp_path, *WITHOUT_VLLM, layout)
    assert all(word in error for word in words)
    assert not started(tmp_path)


def test_a_data_file_that_is_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "rows.jsonl"
    (error,) = failing(tmp_path, *WITHOUT_VLLM, "data=jsonl", f"data.path={missing}")
    assert "data.path" in error
    assert str(missing) in error
    assert "Give the path of an existing file" in error
    assert not started(tmp_path)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("{not json", ("line 3", "not a JSON object")),
        pytest.param(json.dumps({**ROW, "metadata": {}}), ("line 3", "`image`"), marks=LONG),
    ],
)
def test_a_malformed_row_is_found_before_anything_starts(tmp_path: Path, broken: str, words: tuple[str, ...]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join([json.dumps(ROW), json.dumps(ROW), broken]))
    (error,) = failing(tmp_path, *WITHOUT_VLLM, "data=jsonl", f"data.path={rows}")
    assert str(rows) in error
    assert all(word in error for word in words)
    assert not started(tmp_path)


@pytest.mark.parametrize("harness", ["claude_code", pytest.param("codex", marks=LONG)])
def test_a_cli_that_was_not_fetched(tmp_path: Path, harness: str) -> None:
    (error,) = failing(tmp_path, *WITHOUT_VLLM, f"harness={harness}", f"harness.cache_dir={tmp_path}/no-clis")
    assert harness in error
    assert f"{tmp_path}/no-clis" in error
    assert "make setup" in error
    assert not started(tmp_path)


def test_a_cli_at_a_path_that_is_wrong(tmp_path: Path) -> None:
    (error,) = failing(tmp_path, *WITHOUT_VLLM, "harness.binary=/nonexistent/claude")
    assert "/nonexistent/claude" in error
    assert "harness.binary" in error
    assert not started(tmp_path)


@pytest.mark.parametrize("key", ["engine.port", pytest.param("adapter.port", marks=LONG)])
def test_a_busy_port(tmp_path: Path, key: str) -> None:
    with busy_port() as port:
        engine = () if key == "engine.port" else WITHOUT_VLLM
        (error,) = failing(tmp_path, *engine, f"{key}={port}")
    assert f"port {port} on 127.0.0.1" in error
    assert f"{key}=0" in error
    assert not started(tmp_path)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("dir:/nonexistent", ("not a root file system", "Create one")),
        pytest.param("python:3.11", ("another sandbox provider",), marks=LONG),
    ],
)
def test_an_image_that_does_not_exist(tmp_path: Path, image: str, words: tuple[str, ...]) -> None:
    (error,) = failing(tmp_path, *WITHOUT_VLLM, f"data.image={image}")
    assert repr(image) in error
    assert all(word in error for word in words)
    assert not started(tmp_path)


@pytest.mark.timeout(300)
def test_an_image_of_a_later_task_that_does_not_exist_costs_that_task_alone(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    good, bad = ({**ROW, "metadata": {**ROW["metadata"], "image": image}} for image in ("host", "dir:/nonexistent"))
    for order in ([good, bad], [bad, good]):
        rows.write_text("\n".join(map(json.dumps, order)))
        source = RowsConfig(path=str(rows)).build()
        if next(source.tasks(0)).image == "host":
            break
    run = Command(
        output=tmp_path / "run",
        overrides=("debug=fast", "tracking=none", "job.steps=1", *WITHOUT_VLLM, "data=jsonl", f"data.path={rows}"),
    )
    done = run.run(240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (metrics,) = run.metrics()
    assert metrics["rollout/status/setup_error"] == 2.0
    records = (run.output / "rollouts" / "step_00001.jsonl").read_text().splitlines()
    told = [record["detail"] for record in map(json.loads, records) if record["status"] == "setup_error"]
    assert len(told) == 2
    assert all("dir:/nonexistent" in detail for detail in told)


def test_vllm_that_dies_at_its_start(tmp_path: Path) -> None:
    (error,) = failing(tmp_path, "engine.extra_args=[--no-such-flag]", timeout=240)
    assert "vLLM exited with code 2" in error
    assert "--no-such-flag" in error
    assert str(tmp_path / "run" / "logs") in error
    assert "engine.extra_args" in error


@pytest.mark.parametrize("missing", ["config.json", pytest.param("model.safetensors", marks=LONG)])
def test_a_model_folder_that_is_not_whole(tmp_path: Path, missing: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(Path("rl_agent/embedded/warm_start/claude_code"), folder)
    (folder / missing).unlink()
    (error,) = failing(tmp_path, f"model.path={folder}")
    assert str(folder) in error
    assert "model.path" in error
    assert ("config.json" if missing == "config.json" else "weights") in error
    assert not started(tmp_path)
