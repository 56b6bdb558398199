"""Several trainer ranks as processes of a run: they meet, share the batch, save together, and give the curve of one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.command import SCRIPTED, Command
from tests.local import needs_root

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, needs_root, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


def curve(folder: Path, *more: str) -> list[float]:
    """Of all steps of the run in `folder`, which may be resumed."""
    run = Command(
        output=folder / "run",
        overrides=(
            *SCRIPTED,
            "algo.lr=0.001",
            "job.save_every=1",
            "rollout.tasks_per_step=4",
            f"sandbox.state_dir={folder}/state",
            *more,
        ),
    )
    done = run.run(timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return [record["eval/p_right"] for record in run.metrics()]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The curve of one rank."""
    values = curve(tmp_path_factory.mktemp("alone"), "job.steps=3")
    assert len(set(values)) == 3, "nothing was learned, so an equal curve would show nothing"
    return values


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(("trainer.data_parallel=2", "trainer.distributed_optimizer=true"), id="two copies"),
        pytest.param(("trainer.tensor_parallel=2",), id="two halves"),
    ],
)
def test_two_ranks_have_the_curve_of_one_and_resume(
    layout: tuple[str, ...], tmp_path: Path, alone: list[float]
) -> None:
    assert curve(tmp_path, *layout, "job.steps=2") == pytest.approx(alone[:2], abs=1e-3)
    resumed = curve(tmp_path, *layout, "job.steps=3", f"resume={tmp_path}/run")
    assert resumed == pytest.approx(alone, abs=1e-3)
