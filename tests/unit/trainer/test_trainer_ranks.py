"""Several ranks do what one does. Each rank is a process of its own, over gloo."""

from __future__ import annotations

import socket
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from trainer_cases import grpo, import_megatron, random_batch, segments, trainer, weights

if TYPE_CHECKING:
    from pathlib import Path

LAYOUTS = {
    "two copies": {"data_parallel": 2},
    "two copies, sharded optimizer": {"data_parallel": 2, "distributed_optimizer": True},
    "two shards": {"tensor_parallel": 2},
}


def work(
    rank: int, ranks: int, port: int, folder: Path, layout: dict[str, Any]
) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Two steps and a resume before the third: what one rank sees of them."""
    place = {"rank": rank, "world_size": ranks, "master_port": port}
    algorithm = grpo(epochs=2)
    with trainer(folder / "model", algorithm, place=place, micro_batch_tokens=40, **layout) as one:
        metrics = [dict(one.step(random_batch(seed)).metrics) for seed in range(2)]
        one.save(folder / f"checkpoint{ranks}")
        metrics.append(dict(one.step(random_batch(2)).metrics))
        one.load(folder / f"checkpoint{ranks}")
        metrics.append(dict(one.step(random_batch(2)).metrics))
        scores = [scores.tolist() for scores in one.score(segments(random_batch()))]
        return metrics, scores, {name: tensor.numpy() for name, tensor in weights(one).items()}


@pytest.fixture(scope="module")
def ranks() -> Any:
    """Two processes with Megatron imported; given two tasks at once, each does one."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(import_megatron, range(2)))
        yield pool


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_ranks_do_what_one_does(
    tiny_model: Path, megatron_worker: ProcessPoolExecutor, ranks: ProcessPoolExecutor, layout: str
) -> None:
    folder, port = tiny_model.parent, free_port()
    both = [ranks.submit(work, rank, 2, port, folder, LAYOUTS[layout]) for rank in range(2)]
    metrics, scores, values = megatron_worker.submit(work, 0, 1, 0, folder, {}).result(timeout=120)
    for of_rank in both:
        own_metrics, own_scores, own_values = of_rank.result(timeout=120)
        for step, expected in zip(own_metrics, metrics, strict=True):
            assert step == pytest.approx(expected, rel=1e-3, abs=1e-4)
        assert own_metrics[2] == own_metrics[3]  # the resumed third step is the third step
        for own, expected in zip(own_scores, scores, strict=True):
            np.testing.assert_allclose(own, expected, atol=1e-3)
        for name, tensor in own_values.items():
            np.testing.assert_allclose(tensor, values[name], atol=1e-3, err_msg=name)
