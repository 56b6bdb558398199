"""Several trainer ranks as processes of a run: they meet, share the batch, save together, and give the curve of one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.command import Command
from tests.local import needs_root

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_root, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


def command(folder: Path, *more: str) -> Command:
    return Command(
        output=folder / "run",
        overrides=(
            "tracking=none",
            "debug=fast",
            "algo=sft",
            "algo.group_size=1",
            "algo.lr=0.001",
            "engine=demonstrator",
            "job.steps=2",
            "job.save_every=1",
            "rollout.tasks_per_step=4",
            f"sandbox.state_dir={folder}/state",
            *more,
        ),
    )


def curve(folder: Path, *more: str) -> tuple[Command, list[float]]:
    run = command(folder, *more)
    done = run.run(timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return run, [record["eval/p_right"] for record in run.metrics()]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The curve of one rank."""
    _, values = curve(tmp_path_factory.mktemp("alone"), "job.steps=3")
    assert len(set(values)) == 3, "nothing was learned, so an equal curve would show nothing"
    return values


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(("trainer.data_parallel=2", "trainer.distributed_optimizer=true"), id="two copies"),
        pytest.param(("trainer.tensor_parallel=2",), id="two halves", marks=pytest.mark.long),
    ],
)
def test_two_ranks_have_the_curve_of_one_and_resume(
    layout: tuple[str, ...], tmp_path: Path, alone: list[float]
) -> None:
    run, values = curve(tmp_path, *layout)
    assert values == pytest.approx(alone[:2], abs=1e-3)
    again = command(tmp_path, *layout, "job.steps=3", f"resume={run.output}")
    done = again.run(timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert [record["eval/p_right"] for record in run.metrics()] == pytest.approx(alone, abs=1e-3)
