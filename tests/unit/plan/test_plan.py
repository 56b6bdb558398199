"""Plans: parameters as published, memory as worked by hand, placement and rates by their formulas; and every recipe is planned."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rl_agent.config.check import check
from rl_agent.config.trainer import Precision
from rl_agent.embedded.tiny import WARM_STARTS
from rl_agent.errors import ConfigError
from rl_agent.jobs import plan
from rl_agent.plan.memory import Copies, cache_bytes, engine_memory, total_gb, trainer_memory
from rl_agent.plan.parameters import count_parameters
from rl_agent.plan.placement import Demand, nodes_needed, place
from rl_agent.plan.rates import Assumptions, Work, agent_seconds, rates, training_flops
from rl_agent.run_folder import RunFolder
from rl_agent.trainer.megatron import MegatronConfig
from rl_agent.trainer.shape import shape_of
from tests.conftest import CONF
from tests.unit.config.test_composition import composed

if TYPE_CHECKING:
    from rl_agent.config.schema import Config
    from rl_agent.trainer.shape import ModelShape

RECIPES = ("swe_qwen3_6_35b_a3b_8nodes", "swe_qwen3_30b_a3b_2nodes", "swe_qwen3_4b_1node", "swe_qwen3_8b_1gpu")


def stated(model: str) -> ModelShape:
    return shape_of(yaml.safe_load((CONF / "model" / f"{model}.yaml").read_text())["hf_config"], Path(model))


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("qwen3_0_6b", 596_049_920),
        ("qwen3_4b", 4_022_468_096),
        ("qwen3_8b", 8_190_735_360),
        ("qwen3_30b_a3b", 30_532_122_624),
    ],
)
def test_the_stated_shape_has_the_published_number_of_parameters(model: str, published: int) -> None:
    assert count_parameters(stated(model)).total == published


def test_parameters_are_those_of_the_file(tmp_path: Path) -> None:
    from safetensors import safe_open

    config = composed("job=plan")
    with safe_open(WARM_STARTS / "claude_code" / "model.safetensors", "np") as file:
        count = sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (it is no dictionary)
    assert count_parameters(plan.planned_shape(config, RunFolder(tmp_path))).total == count


@pytest.mark.parametrize("experts", [False, True])
def test_parameters_of_a_hybrid_model_are_those_of_hugging_faces_class(experts: bool) -> None:
    import torch
    from transformers import AutoModelForCausalLM, Qwen3_5MoeTextConfig, Qwen3_5TextConfig

    sizes: dict[str, Any] = {
        "hidden_size": 48,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 160,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "tie_word_embeddings": False,
    }
    if experts:
        mixture = {
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 20,
            "shared_expert_intermediate_size": 24,
        }
        config = Qwen3_5MoeTextConfig(**sizes, **mixture)
    else:
        config = Qwen3_5TextConfig(**sizes, intermediate_size=40)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    counted = count_parameters(shape_of(config.to_dict(), Path("x")))
    assert counted.total == sum(parameter.numel() for parameter in model.parameters())
    assert counted.experts == (8 * 6 * 3 * 48 * 20 if experts else 0)


def test_layers_follow_the_interval_where_they_are_not_listed() -> None:
    shape = stated("qwen3_6_35b_a3b")
    assert shape.linear is not None
    assert [layer for layer, linear in enumerate(shape.linear.layers) if not linear] == list(range(3, 40, 4))
    assert count_parameters(shape).total == pytest.approx(34.66e9, rel=1e-3)


EXAMPLE = MegatronConfig(
    precision=Precision.bfloat16,
    tensor_parallel=4,
    sequence_parallel=True,
    data_parallel=2,
    distributed_optimizer=True,
    recompute=True,
    micro_batch_tokens=32768,
)
"""The worked example of docs/trainer.md."""


def gb(shape: ModelShape, trainer: MegatronConfig, longest: int = 0, copies: Copies | None = None) -> dict[str, float]:
    terms = trainer_memory(shape, trainer, longest=longest, bucket_gb=0.0, copies=copies or Copies())
    return {term.name: term.gb for term in terms}


def test_memory_of_the_worked_example() -> None:
    found = gb(stated("qwen3_8b"), EXAMPLE)
    assert found["weights"] == pytest.approx(2 * 8.190735360 / 4)
    assert found["gradients"] == pytest.approx(4 * 8.190735360 / 4)
    assert found["optimizer"] == pytest.approx(12 * 8.190735360 / 4 / 2)
    assert found["kept inputs"] == pytest.approx(2 * 32768 * 36 * 4096 / 4 / 1e9)
    assert found["one layer again"] == pytest.approx(2 * 32768 * (16384 + 10240 + 36864) / 4 / 1e9)
    assert found["logits"] == pytest.approx(12 * 4096 * 151936 / 4 / 1e9)
    assert sum(found.values()) - found["a push"] == pytest.approx(29.9, abs=0.1)
    whole = gb(stated("qwen3_8b"), replace(EXAMPLE, recompute=False))
    assert whole["activations"] == pytest.approx(37.4, abs=0.1)
    assert sum(whole.values()) - whole["a push"] == pytest.approx(64, abs=0.5)


def test_memory_of_experts_over_ranks() -> None:
    # P = 30.53e9, of them 48 x 128 x 3 x 2048 x 768 = 28.99e9 experts'; TP2 EP8 CP4: the rest over 2, experts over 8 and not copied
    layout = replace(EXAMPLE, tensor_parallel=2, context_parallel=4, expert_parallel=8, data_parallel=1)
    found = gb(stated("qwen3_30b_a3b"), layout, longest=40960)
    experts = 48 * 128 * 3 * 2048 * 768
    own = (30_532_122_624 - experts) / 2 + experts / 8
    assert found["weights"] == pytest.approx(2 * own / 1e9)
    assert found["optimizer"] == pytest.approx(12 * ((30_532_122_624 - experts) / 2 / 4 + experts / 8 / 1) / 1e9)
    # a token in one layer: (4 x 2048 + 2 x 36 x 128 + 8 x (2 x 2048 + 3 x 768)) / 2 numbers; 40960 / 4 tokens
    width = (4 * 2048 + 2 * 36 * 128 + 8 * (2 * 2048 + 3 * 768)) / 2
    assert found["one layer again"] == pytest.approx(2 * 10240 * width / 1e9)


def test_memory_of_further_networks_and_of_an_offloaded_optimizer() -> None:
    shape = stated("qwen3_4b")
    plain, more = gb(shape, EXAMPLE), gb(shape, EXAMPLE, copies=Copies(frozen=2, critic=True))
    assert more["frozen policies"] == pytest.approx(2 * plain["weights"])
    assert more["critic"] == pytest.approx(plain["weights"] + plain["gradients"] + plain["optimizer"])
    assert gb(shape, replace(EXAMPLE, optimizer_offload=0.75))["optimizer"] == pytest.approx(plain["optimizer"] / 4)
    full = gb(shape, replace(EXAMPLE, distributed_optimizer=False, precision=Precision.float32))
    assert full["optimizer"] == pytest.approx(8 * 4.022468096 / 4)


def test_the_cache_of_a_hybrid_model_is_small_a_token_and_has_a_part_a_sequence() -> None:
    per_token, per_sequence = cache_bytes(stated("qwen3_6_35b_a3b"), tp=2, bytes_each=2)
    assert per_token == 2 * 10 * 1 * 256 * 2  # 10 softmax layers, one key-value head a GPU
    assert per_sequence == 30 * (4 * 32 * 128 * 128 + 2 * 3 * (2 * 16 * 128 + 32 * 128)) / 2
    per_token, per_sequence = cache_bytes(stated("qwen3_8b"), tp=1, bytes_each=2)
    assert (per_token, per_sequence) == (147_456, 0.0)
    assert cache_bytes(stated("qwen3_8b"), tp=16, bytes_each=2)[0] == 2 * 36 * 128 * 2  # heads are copied, not split


def test_what_weights_leave_is_cache() -> None:
    found = engine_memory(stated("qwen3_8b"), tp=1, bytes_each=2, gpu_gb=80, utilization=0.85, overhead_gb=4)
    assert found.cache_gb == pytest.approx(68 - 16.38147 - 4, abs=1e-4)
    assert total_gb(found.terms) == pytest.approx(68)
    assert found.sequences(32768) == pytest.approx(found.cache_gb * 1e9 / (147_456 * 32768))
    assert (
        engine_memory(stated("qwen3_8b"), tp=1, bytes_each=2, gpu_gb=24, utilization=0.85, overhead_gb=4).sequences(
            32768
        )
        < 1
    )


def test_processes_fill_machines_in_order() -> None:
    demand = Demand(ranks=8, gpus_per_rank=1, engines=3, gpus_per_engine=2, workers=3, colocated=False)
    assert nodes_needed(demand, 8) == 2
    first, second = place(demand, 2, 8)
    assert (first.trainer_ranks, first.engines, first.workers, first.gpus_left) == (8, 0, 2, 0)
    assert (second.trainer_ranks, second.engines, second.workers, second.gpus_left) == (0, 3, 1, 2)
    with pytest.raises(ConfigError, match="14 GPUs are requested"):
        place(demand, 1, 8)
    with pytest.raises(ConfigError, match=r"job\.gpus_per_node=\d+: too few for a process"):
        nodes_needed(replace(demand, gpus_per_engine=16), 8)
    shared = Demand(ranks=4, gpus_per_rank=0.5, engines=2, gpus_per_engine=0.5, workers=1, colocated=True)
    (only,) = place(shared, nodes_needed(shared, 4), 4)
    assert (only.trainer_ranks, only.engines, only.gpus_left) == (4, 2, 0)


def test_durations_of_agents_are_log_normal() -> None:
    sigma = math.log(1500 / 360) / 1.6448536
    assert agent_seconds(360, 1500) == pytest.approx(360 * math.exp(sigma**2 / 2), rel=1e-6)
    assert agent_seconds(360, 1500, longest_of=19) == pytest.approx(1500, rel=1e-6)  # the quantile 1 - 1 / 20


def test_operations_of_a_pass() -> None:
    shape = stated("qwen3_8b")
    active = 8_190_735_360 - 151936 * 4096  # the input's matrix is looked up, not multiplied
    plain = training_flops(shape, tokens=1e6, context=10_000, recompute=False)
    assert plain == pytest.approx(1e6 * (6 * active + 6 * 36 * 4096 * 10_000))
    assert training_flops(shape, tokens=1e6, context=10_000, recompute=True) == pytest.approx(plain * 4 / 3)


def test_a_synchronous_step_is_a_sum_and_an_asynchronous_one_its_slowest_part() -> None:
    assume = Assumptions(
        agent_median_s=100, agent_p95_s=100.0001, grading_s=20, set_up_s=0, engine_tokens_per_s=100, push_s=5
    )
    work = Work(
        rollouts=10, max_context_tokens=50_000, max_concurrent=5, agent_budget_s=600, guard_s=720, synchronous=True
    )
    made = rates(work, assume, stated("qwen3_4b"), trainer_gpus=1, engine_gpus=10, recompute=False, passes=1)
    assert made.sampling_s == pytest.approx(240, rel=1e-3)  # two rounds of 120 s; the engine: 120,000 / 1000 = 120 s
    assert made.step_s == pytest.approx(made.sampling_s + made.training_s + 5)
    assert made.sandbox_hours == pytest.approx(10 * 120 / 3600, rel=1e-3)
    assert made.most_sandbox_hours == pytest.approx(2)
    assert made.most_tokens == 500_000
    overlapped = rates(
        replace(work, synchronous=False),
        assume,
        stated("qwen3_4b"),
        trainer_gpus=1,
        engine_gpus=10,
        recompute=False,
        passes=1,
    )
    assert overlapped.step_s == pytest.approx(max(240, made.training_s) + 5, rel=1e-3)
    slow = rates(
        replace(work, synchronous=False),
        assume,
        stated("qwen3_4b"),
        trainer_gpus=1,
        engine_gpus=1,
        recompute=False,
        passes=1,
    )
    assert slow.bound_by == "the engine"
    assert slow.sampling_s == pytest.approx(1200)


def recipe(name: str, tmp_path: Path, *more: str) -> Config:
    (tmp_path / "tasks.jsonl").write_text("")
    return composed(f"experiment={name}", "job=plan", f"data.path={tmp_path}/tasks.jsonl", *more)


def run(config: Config, folder: Path) -> None:
    config.job.run(config, RunFolder(folder))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_passes_check_and_is_planned_without_a_gpu(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = recipe(name, tmp_path)
    assert check(config) == []
    assert check(composed(f"experiment={name}", f"data.path={tmp_path}/tasks.jsonl")) == []  # as job=train
    config.job.run(config, RunFolder(tmp_path))
    shown = capsys.readouterr().out
    for part in (
        "memory of one trainer rank",
        "key-value cache",
        "sandbox-hours per step",
        "steps per hour",
        "processes:",
    ):
        assert part in shown
    record = json.loads((tmp_path / "plan.json").read_text())
    assert record["does_not_fit"] == []
    assert len(record["nodes"]) == {"8nodes": 8, "2nodes": 2}.get(name.rpartition("_")[2], 1)
    assert bool(record["layout_refused"]) == (name == "swe_qwen3_6_35b_a3b_8nodes")


def test_the_recipe_of_the_hybrid_model_has_a_layout_that_the_trainer_takes(tmp_path: Path) -> None:
    layout = (
        "tensor_parallel=1",
        "sequence_parallel=false",
        "context_parallel=1",
        "pipeline_parallel=2",
        "data_parallel=16",
        "output_chunk_tokens=1024",
    )
    config = recipe("swe_qwen3_6_35b_a3b_8nodes", tmp_path, *(f"trainer.{field}" for field in layout))
    config.job.run(config, RunFolder(tmp_path))
    record = json.loads((tmp_path / "plan.json").read_text())
    assert record["layout_refused"] == ""
    assert len(record["nodes"]) == 8


def test_what_does_not_fit_is_an_error_with_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("job.gpu_memory_gb=24",)
    with pytest.raises(ConfigError, match=r"does not fit into memory: a trainer rank needs 50\.\d GB of 21\.6 GB"):
        run(recipe("swe_qwen3_4b_1node", tmp_path, *small), tmp_path)
    run(recipe("swe_qwen3_4b_1node", tmp_path, *small, "job.require_fit=false"), tmp_path)
    assert "does not fit: a trainer rank needs" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"16 GPUs are requested.*1 machines x 8 GPUs are too few"):
        run(recipe("swe_qwen3_30b_a3b_2nodes", tmp_path, "job.nodes=1"), tmp_path)


def test_the_embedded_default_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = composed("job=plan")
    assert check(config) == []
    config.job.run(config, RunFolder(tmp_path))
    assert "no GPU: in CPU memory" in capsys.readouterr().out
