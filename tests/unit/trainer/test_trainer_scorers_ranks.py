"""Critic, reference and teacher under every layout: two ranks do what one does. Each rank is a process of its own, over gloo."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from trainer_cases import TINY, grpo, import_megatron, random_batch, trainer

from rl_agent.algo.advantage.gae import GaeConfig
from rl_agent.algo.aggregation.rollout_mean import RolloutMeanConfig
from rl_agent.algo.correction.decoupled import DecoupledConfig
from rl_agent.algo.kl.penalty import PenaltyConfig
from rl_agent.algo.loss.distillation import DistillationConfig
from rl_agent.config.algo import KlPlace, Need
from rl_agent.ports import hold_port, number

if TYPE_CHECKING:
    from pathlib import Path

UNTIED = TINY | {"tie_word_embeddings": False}
EXPERTS = TINY | {
    "model_type": "qwen3_moe",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "norm_topk_prob": True,
}
CASES = {
    "two copies": (TINY, {"data_parallel": 2}),
    "two copies, sharded optimizer": (TINY, {"data_parallel": 2, "distributed_optimizer": True}),
    "two shards": (TINY, {"tensor_parallel": 2}),
    "two shards, sequence too": (TINY, {"tensor_parallel": 2, "sequence_parallel": True}),
    "two stages": (TINY, {"pipeline_parallel": 2}),
    "two stages of untied": (UNTIED, {"pipeline_parallel": 2}),
    "two parts of each sequence": (TINY, {"context_parallel": 2}),
    "experts spread over two": (EXPERTS, {"data_parallel": 2, "expert_parallel": 2}),
}
IN_EVERY_RUN = ("two copies, sharded optimizer", "two shards, sequence too", "two stages", "experts spread over two")
"""Cases of `make test`; the others run under `make test-long`."""


def work(rank: int, ranks: int, port: int, folder: Path, layout: dict[str, Any]) -> dict[str, Any]:
    """Three steps of an algorithm that asks for every score there is, the third of them again after a resume."""
    algorithm = grpo(
        advantage=GaeConfig(critic_lr=3e-3),
        loss=DistillationConfig(teacher=str(folder / "teacher"), reward_weight=0.5),
        kl=PenaltyConfig(place=KlPlace.reward),
        correction=DecoupledConfig(),
        aggregation=RolloutMeanConfig(),
    )
    place = {"rank": rank, "world_size": ranks, "master_port": port}
    with trainer(folder / "model", algorithm, place=place, micro_batch_tokens=40, grad_clip=0.0, **layout) as one:
        metrics = [dict(one.step(random_batch(seed)).metrics) for seed in (0, 1)]
        one.save(folder / f"checkpoint{ranks}")
        scores = one.score(random_batch(), frozenset(Need))
        metrics.append(dict(one.step(random_batch(2)).metrics))
        one.load(folder / f"checkpoint{ranks}")
        metrics.append(dict(one.step(random_batch(2)).metrics))
    return {"metrics": metrics, "scores": {need: scores.get(need) for need in Need}}


def seed_teacher(folder: Path) -> None:
    """Weights of another seed than the policy's."""
    with trainer(folder / "model", grpo(lr=0.05)) as other:
        other.step(random_batch(9))
        (folder / "teacher").mkdir()
        other.export(folder / "teacher")


@pytest.fixture(scope="module")
def ranks() -> Any:
    """Two processes with Megatron imported; given two tasks at once, each does one."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(import_megatron, range(2)))
        yield pool


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.long] * (name not in IN_EVERY_RUN))
        for name, case in CASES.items()
    ],
)
def test_every_score_and_the_critics_steps_are_those_of_one_process(
    tmp_path: Path,
    ranks: ProcessPoolExecutor,
    megatron_worker: ProcessPoolExecutor,
    shape: dict[str, Any],
    layout: dict[str, Any],
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(shape))
    megatron_worker.submit(seed_teacher, tmp_path).result(timeout=120)
    expected = megatron_worker.submit(work, 0, 1, 0, tmp_path, {}).result(timeout=120)
    with hold_port("127.0.0.1") as held:
        both = [ranks.submit(work, rank, 2, number(held), tmp_path, layout) for rank in range(2)]
        answers = [future.result(timeout=120) for future in both]
    for seen in answers:
        for need in Need:
            np.testing.assert_allclose(seen["scores"][need], expected["scores"][need], atol=1e-4, err_msg=need)
        first, _, third, resumed = seen["metrics"]
        assert first == pytest.approx(expected["metrics"][0], rel=1e-4, abs=1e-5)
        assert third["train/critic_loss"] == pytest.approx(expected["metrics"][2]["train/critic_loss"], rel=1e-3)
        assert third["train/loss"] == pytest.approx(expected["metrics"][2]["train/loss"], abs=2e-4)
        assert third == resumed  # the critic comes back under every layout, too
    assert np.abs(expected["scores"][Need.VALUES]).max() > 0.01
    assert expected["metrics"][2]["train/teacher_kl"] != 0
    assert expected["metrics"][2]["train/reference_kl"] != 0
