"""Several ranks do what one does. Each rank is a process of its own, over gloo."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from trainer_cases import TINY, gradients, grpo, import_megatron, random_batch, segments, trainer, weights

from rl_agent.ports import hold_port, number

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODELS = {
    "tied": TINY,
    "untied": TINY | {"tie_word_embeddings": False},
    "experts": TINY
    | {
        "model_type": "qwen3_moe",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "norm_topk_prob": True,
    },
}
MODELS["hybrid"] = TINY | {
    "model_type": "qwen3_5_text",
    "layer_types": ["linear_attention", "full_attention"],
    "initializer_range": 0.1,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_conv_kernel_dim": 4,
}
LAYOUTS = {
    "two copies": {"data_parallel": 2},
    "two copies, sharded optimizer": {"data_parallel": 2, "distributed_optimizer": True},
    "two shards": {"tensor_parallel": 2},
    "two shards, sequence too": {"tensor_parallel": 2, "sequence_parallel": True},
    "two stages": {"pipeline_parallel": 2},
    "two parts of each sequence": {"context_parallel": 2},
    "experts spread over two": {"data_parallel": 2, "expert_parallel": 2},
}
CASES = [
    *(("tied", layout) for layout in LAYOUTS if layout != "experts spread over two"),
    *(("untied", layout) for layout in ("two stages", "two parts of each sequence")),
    *(("hybrid", layout) for layout in ("two shards", "two stages")),
    *(("experts", layout) for layout in ("two shards, sequence too", "two stages", "experts spread over two")),
]
LOSS, GRADIENT, LATER_LOSS = 1e-5, 1e-4, 2e-4
"""Largest difference to one process: of the loss, of a gradient relative to its own norm, of the loss after three steps."""


@dataclass
class Seen:
    """What one rank saw of three steps, and of the third again after a resume."""

    scores: list[np.ndarray]
    metrics: list[dict[str, float]]
    gradients: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]


def work(rank: int, ranks: int, port: int, folder: Path, layout: dict[str, Any]) -> Seen:
    place = {"rank": rank, "world_size": ranks, "master_port": port}
    with trainer(
        folder / "model", grpo(), place=place, micro_batch_tokens=40, output_chunk_tokens=16, grad_clip=0.0, **layout
    ) as one:
        scores = one.logprobs(segments(random_batch()))
        metrics = [dict(one.step(random_batch(0)).metrics)]
        _gather_sharded_gradients(one)
        first = {name: tensor.numpy() for name, tensor in gradients(one).items()}
        metrics.append(dict(one.step(random_batch(1)).metrics))
        one.save(folder / f"checkpoint{ranks}")
        metrics.append(dict(one.step(random_batch(2)).metrics))
        one.load(folder / f"checkpoint{ranks}")
        metrics.append(dict(one.step(random_batch(2)).metrics))
        values = {name: tensor.numpy() for name, tensor in weights(one).items()}
    return Seen(scores=scores, metrics=metrics, gradients=first, weights=values)


def _gather_sharded_gradients(one: Any) -> None:
    """A sharded optimizer leaves each copy with its own part of the sum."""
    import torch.distributed as dist
    from megatron.core import parallel_state

    rank = one._joined()
    if not rank._config.distributed_optimizer:
        return
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    for buffer in rank._wrapped.buffers:
        for bucket in buffer.buckets:
            own = bucket.grad_data.chunk(dist.get_world_size(group))[dist.get_rank(group)].clone()
            parts = [own.clone() for _ in range(dist.get_world_size(group))]
            dist.all_gather(parts, own, group=group)
            for whole, part in zip(bucket.grad_data.chunk(len(parts)), parts, strict=True):
                whole.copy_(part)


@pytest.fixture(scope="module")
def ranks() -> Any:
    """Two processes with Megatron imported; given two tasks at once, each does one."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(import_megatron, range(2)))
        yield pool


@pytest.fixture(scope="module")
def alone(
    tmp_path_factory: pytest.TempPathFactory, megatron_worker: ProcessPoolExecutor
) -> dict[str, tuple[Path, Seen]]:
    """For each model, its folder and what a single process sees."""
    found = {}
    for name, shape in MODELS.items():
        folder = tmp_path_factory.mktemp(name)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(shape))
        found[name] = folder, megatron_worker.submit(work, 0, 1, 0, folder, {}).result(timeout=120)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("model", "layout"), CASES)
def test_two_ranks_do_what_one_does(
    alone: dict[str, tuple[Path, Seen]], ranks: ProcessPoolExecutor, model: str, layout: str
) -> None:
    folder, expected = alone[model]
    with hold_port("127.0.0.1") as held:
        both = [ranks.submit(work, rank, 2, number(held), folder, LAYOUTS[layout]) for rank in range(2)]
        answers = [future.result(timeout=120) for future in both]
    for seen in answers:
        for own, scores in zip(seen.scores, expected.scores, strict=True):
            np.testing.assert_allclose(own, scores, atol=1e-5)
        assert seen.metrics[0] == pytest.approx(expected.metrics[0], rel=1e-4, abs=LOSS)
        assert seen.metrics[0]["train/loss"] == pytest.approx(expected.metrics[0]["train/loss"], abs=LOSS)
        assert seen.metrics[2]["train/loss"] == pytest.approx(expected.metrics[2]["train/loss"], abs=LATER_LOSS)
        assert seen.metrics[2] == seen.metrics[3]  # the resumed third step is the third step
        assert sorted(seen.gradients) == sorted(expected.gradients)
        for name, gradient in seen.gradients.items():
            other = expected.gradients[name]
            assert np.linalg.norm(gradient - other) <= GRADIENT * np.linalg.norm(other), name
        for name, tensor in seen.weights.items():
            np.testing.assert_allclose(tensor, expected.weights[name], atol=1e-3, err_msg=name)


ONE: dict[str, Any] = {}
DISTRIBUTED = {"distributed_optimizer": True}
RESHARDED = {
    "one process, then two shards": (ONE, LAYOUTS["two shards"]),
    "two copies with a sharded optimizer, then two shards": (
        LAYOUTS["two copies, sharded optimizer"],
        LAYOUTS["two shards"] | DISTRIBUTED,
    ),
    "two stages, then one process": (LAYOUTS["two stages"], ONE),
}
LATER_STEPS = (2, 0, 1, 2, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), RESHARDED.values(), ids=RESHARDED)
def test_a_checkpoint_is_continued_under_another_layout(
    alone: dict[str, tuple[Path, Seen]],
    ranks: ProcessPoolExecutor,
    tmp_path: Path,
    before: dict[str, Any],
    after: dict[str, Any],
) -> None:
    folder, _ = alone["tied"]
    uninterrupted = _together(ranks, _save_and_go_on, folder, tmp_path, before)
    for losses in _together(ranks, _resume, folder, tmp_path, after):
        assert losses[0] == pytest.approx(uninterrupted[0][0], abs=LOSS)
        assert losses == pytest.approx(uninterrupted[0], abs=LATER_LOSS)


def test_five_steps_after_a_resume_under_the_same_layout_are_those_of_the_uninterrupted_run(
    alone: dict[str, tuple[Path, Seen]], ranks: ProcessPoolExecutor, tmp_path: Path
) -> None:
    folder, _ = alone["tied"]
    layout = LAYOUTS["two copies, sharded optimizer"]
    uninterrupted = _together(ranks, _save_and_go_on, folder, tmp_path, layout)
    for losses in _together(ranks, _resume, folder, tmp_path, layout):
        assert losses == pytest.approx(uninterrupted[0], abs=1e-5)


def _together(
    ranks: ProcessPoolExecutor, what: Callable[..., list[float]], folder: Path, scratch: Path, layout: dict[str, Any]
) -> list[list[float]]:
    """What each rank of a layout answers."""
    count = 2 if layout else 1  # `ONE` is empty
    with hold_port("127.0.0.1") as held:
        arguments = count, number(held), folder, scratch / "checkpoint", layout
        futures = [ranks.submit(what, rank, *arguments) for rank in range(count)]
        return [future.result(timeout=120) for future in futures]


def _save_and_go_on(
    rank: int, ranks: int, port: int, folder: Path, checkpoint: Path, layout: dict[str, Any]
) -> list[float]:
    """The losses of five steps after a checkpoint, which is written during the first of them."""
    place = {"rank": rank, "world_size": ranks, "master_port": port}
    with trainer(folder / "model", grpo(), place=place, micro_batch_tokens=40, **layout) as one:
        for step in (0, 1):
            one.step(random_batch(step))
        one.begin_save(checkpoint)
        losses = [one.step(random_batch(LATER_STEPS[0])).metrics["train/loss"]]
        one.finish_save()
        return losses + [one.step(random_batch(step)).metrics["train/loss"] for step in LATER_STEPS[1:]]


def _resume(rank: int, ranks: int, port: int, folder: Path, checkpoint: Path, layout: dict[str, Any]) -> list[float]:
    """The same steps, by trainers that have read the checkpoint."""
    place = {"rank": rank, "world_size": ranks, "master_port": port}
    with trainer(folder / "model", grpo(), place=place, micro_batch_tokens=40, **layout) as one:
        one.load(checkpoint)
        return [one.step(random_batch(step)).metrics["train/loss"] for step in LATER_STEPS]
