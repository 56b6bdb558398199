"""The plan job: processes, memory, tokens, sandboxes and time of a configuration. It needs no GPU and no network."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rl_agent.errors import ConfigError
from rl_agent.plan.memory import Copies, EngineMemory, Term, engine_memory, total_gb, trainer_memory
from rl_agent.plan.parameters import count_parameters
from rl_agent.plan.placement import Demand, Node, nodes_needed, place
from rl_agent.plan.rates import Rates, Work, rates
from rl_agent.run_folder import write_atomic
from rl_agent.tracking.console import Console
from rl_agent.trainer.legal import require_legal
from rl_agent.trainer.shape import read_shape, shape_of

if TYPE_CHECKING:
    from rl_agent.config.schema import Config
    from rl_agent.jobs.configs import PlanConfig
    from rl_agent.run_folder import RunFolder
    from rl_agent.trainer.shape import ModelShape

SYNC: Final = "sync"
RESIDENT: Final = ("weights", "gradients", "optimizer", "frozen policies", "critic")
"""Parts of the trainer's memory that stay allocated between steps."""


def run(config: Config, job: PlanConfig, folder: RunFolder) -> None:
    """Print the plan and write plan.json.

    Raises ConfigError if memory does not suffice and `job.require_fit` is set.
    """
    shape = planned_shape(config, folder)
    faults: list[str] = []
    with Console(steps=0, first_step=0, rollouts_per_step=0, live=False) as console:
        console.say(f"plan of model={config.model.name}: {_size(shape)}")
        console.say("check: no contradictions")  # otherwise the job would not have started
        layout = refused(config, shape)
        console.say(f"trainer layout: {'rejected: ' + layout if layout else 'valid'}")
        demand = demanded(config)
        gpus = job.gpus_per_node
        nodes = place(demand, job.nodes or nodes_needed(demand, gpus), gpus)
        _say_placement(console, nodes, demand)
        trainer, engine = memory(config, job, shape)
        faults += _say_trainer(console, config, job, trainer)
        faults += _say_engine(console, config, job, engine) if engine else []
        faults += _say_shared(console, config, job, trainer) if engine and demand.colocated else []
        work = planned_work(config)
        rate = planned_rates(config, job, shape, work, demand)
        _say_rates(console, config, job, work, rate)
        for fault in faults:
            console.say(f"does not fit: {fault}")
    write_atomic(
        folder.root / "plan.json",
        json.dumps(_record(shape, layout, nodes, trainer, engine, rate, faults), indent=2).encode(),
    )
    if faults and job.require_fit:
        raise ConfigError("the configuration does not fit into memory: " + " ".join(faults))


def planned_shape(config: Config, folder: RunFolder) -> ModelShape:
    """Return the shape from config.json in `model.path`, from `model.hf_config`, or from the model's own folder."""
    path, stated = config.model.path, config.model.hf_config
    if path is None and stated:
        return shape_of(stated, Path(f"model={config.model.name} (model.hf_config)"))
    return read_shape(config.model.build().folder(folder.root))


def refused(config: Config, shape: ModelShape) -> str:
    """Return why the installed trainer rejects the layout, or an empty string."""
    try:
        require_legal(config.trainer, shape)
    except ConfigError as error:
        return str(error)
    return ""


def demanded(config: Config) -> Demand:
    """Return the processes and GPUs of the configuration."""
    cluster = config.cluster
    engines = cluster.engine_replicas if config.engine.runs_model else 0
    return Demand(
        ranks=config.trainer.world_size,
        gpus_per_rank=cluster.trainer_gpus,
        engines=engines,
        gpus_per_engine=cluster.engine_gpus,
        workers=cluster.rollout_workers,
        colocated=cluster.colocated,
    )


def memory(config: Config, job: PlanConfig, shape: ModelShape) -> tuple[list[Term], EngineMemory | None]:
    """Return the memory of one trainer GPU, and of one engine GPU if vLLM runs on a GPU."""
    algo, trainer = config.algo, config.trainer
    bucket = config.weights.bucket_mb / 1000
    copies = Copies(
        frozen=algo.frozen_policies,
        critic=algo.advantage.needs_critic,
    )
    terms = trainer_memory(shape, trainer, longest=config.rollout.max_context_tokens, bucket_gb=bucket, copies=copies)
    engine = config.engine
    if not engine.runs_model or engine.gpu_memory_utilization is None:
        return terms, None
    bytes_each = 4 if engine.dtype == "float32" else 2
    found = engine_memory(
        shape,
        tp=engine.tensor_parallel,
        bytes_each=bytes_each,
        gpu_gb=job.gpu_memory_gb,
        utilization=engine.gpu_memory_utilization,
        overhead_gb=job.engine_overhead_gb,
    )
    return terms, found


def planned_work(config: Config) -> Work:
    """Return the work of one step."""
    rollout = config.rollout
    return Work(
        rollouts=(rollout.tasks_per_step + rollout.extra_tasks) * (config.algo.group_size + rollout.extra_members),
        max_context_tokens=rollout.max_context_tokens,
        max_concurrent=rollout.max_concurrent,
        agent_budget_s=config.harness.time_budget_s,
        guard_s=config.guard_s,
        synchronous=rollout.mode.value == SYNC or config.algo.max_staleness == 0,
    )


def planned_rates(config: Config, job: PlanConfig, shape: ModelShape, work: Work, demand: Demand) -> Rates:
    """Return the time and tokens of one step under `job.assume`."""
    return rates(
        work,
        job.assume,
        shape,
        trainer_gpus=demand.ranks * demand.gpus_per_rank,
        engine_gpus=demand.engines * demand.gpus_per_engine,
        recompute=config.trainer.recompute,
        passes=config.algo.epochs,
    )


def _say_placement(console: Console, nodes: list[Node], demand: Demand) -> None:
    what = f"{demand.ranks} trainer ranks, {demand.engines} policy servers, {demand.workers} rollout workers"
    console.say(
        f"processes: {what}; {demand.gpus:g} {'GPU' if demand.gpus == 1 else 'GPUs'} on {len(nodes)} "
        f"{'machine' if len(nodes) == 1 else 'machines'}"
    )
    start = 0
    while start < len(nodes):  # one line for equal neighbors
        end = start
        while end + 1 < len(nodes) and nodes[end + 1].processes == nodes[start].processes:
            end += 1
        name = f"machine {start}" if start == end else f"machines {start} to {end}, each"
        console.say(f"  {name}: {nodes[start].processes}; {nodes[start].gpus_left:g} GPUs free")
        start = end + 1


def _say_terms(console: Console, title: str, terms: list[Term]) -> None:
    rows = [{"part": term.name, "arithmetic": term.arithmetic, "GB": f"{term.gb:.2f}"} for term in terms]
    console.table(title, [*rows, {"part": "total", "arithmetic": "", "GB": f"{total_gb(terms):.2f}"}])


def _say_trainer(console: Console, config: Config, job: PlanConfig, terms: list[Term]) -> list[str]:
    _say_terms(console, "memory of one trainer rank", terms)
    if not config.cluster.trainer_gpus:
        console.say("  (no GPU: in CPU memory)")
        return []
    room = job.gpu_memory_gb * (1 - job.reserve)
    needed = total_gb(terms)
    console.say(
        f"  of {job.gpu_memory_gb:g} GB, {room:g} GB after the reserve of {job.reserve:.0%}: {room - needed:.1f} GB free"
    )
    if needed <= room:
        return []
    return [
        f"a trainer rank needs {needed:.1f} GB of {room:g} GB. Raise trainer.tensor_parallel, context_parallel, "
        "pipeline_parallel, data_parallel (with distributed_optimizer) or optimizer_offload, set recompute=true, or lower "
        "output_chunk_tokens or rollout.max_context_tokens."
    ]


def _say_engine(console: Console, config: Config, job: PlanConfig, engine: EngineMemory) -> list[str]:
    longest = config.rollout.max_context_tokens
    _say_terms(console, "memory of one GPU of a policy server", engine.terms)
    fits = engine.sequences(longest)
    usual = engine.sequences(min(job.assume.context_tokens, longest))
    replicas = config.cluster.engine_replicas
    state = f" and {engine.bytes_per_sequence / 1e6:.1f} MB per sequence" if engine.bytes_per_sequence else ""
    console.say(
        f"  cache: {engine.bytes_per_token / 1e3:.1f} kB per token{state}; {fits:.1f} sequences of {longest} tokens "
        f"per server, {fits * replicas:.0f} in total"
    )
    at_once = config.rollout.max_concurrent
    if fits >= 1 and usual * replicas < at_once:
        console.say(
            f"  note: {usual * replicas:.0f} conversations of the expected length fit, but up to {at_once} run: "
            "some wait or are recomputed"
        )
    if fits >= 1:
        return []
    return [
        f"the cache of a policy server holds {fits:.2f} sequences of rollout.max_context_tokens={longest}. Raise "
        "engine.tensor_parallel or engine.gpu_memory_utilization, or lower rollout.max_context_tokens."
    ]


def _say_shared(console: Console, config: Config, job: PlanConfig, terms: list[Term]) -> list[str]:
    """Print the memory of a shared GPU.

    While the engine samples, the trainer keeps its weights, gradients and optimizer.
    """
    share = job.gpu_memory_gb * (config.engine.gpu_memory_utilization or 0.0)
    resident = sum(term.gb for term in terms if term.name in RESIDENT)
    room = job.gpu_memory_gb * (1 - job.reserve)
    console.say(
        f"  shared GPU: the trainer keeps {resident:.1f} GB while the engine has {share:.1f} GB: "
        f"{room - resident - share:.1f} GB free"
    )
    if resident + share <= room:
        return []
    return [
        f"trainer ({resident:.1f} GB) and engine ({share:.1f} GB) share a GPU of {job.gpu_memory_gb:g} GB. Lower "
        "engine.gpu_memory_utilization, or set trainer.optimizer_offload=1.0."
    ]


def _say_rates(console: Console, config: Config, job: PlanConfig, work: Work, rate: Rates) -> None:
    assume = job.assume
    sandboxes = work.max_concurrent + config.rollout.warm_sandboxes * config.cluster.rollout_workers
    hours = job.steps * rate.step_s / 3600
    for line in (
        f"rollouts per step: {work.rollouts}",
        f"tokens per step: {rate.sampled_tokens:.3g} sampled, {rate.trained_tokens:.3g} in the trainer (expected); "
        f"at most {rate.most_tokens:.3g} with one segment per rollout",
        f"concurrent sandboxes: {sandboxes} (the agent's sandbox is closed before the grading sandbox boots)",
        f"sandbox-hours per step: {rate.sandbox_hours:.1f} expected, {rate.most_sandbox_hours:.1f} at most",
        f"seconds per step: sampling {rate.sampling_s:.0f}, training {rate.training_s:.0f}, push {rate.push_s:.0f}; "
        + ("in sequence" if work.synchronous else "sampling and training overlap"),
        f"steps per hour: {rate.steps_per_hour:.1f}, bound by {rate.bound_by}",
        f"{job.steps} steps: {hours:.1f} hours, {job.steps * rate.sandbox_hours:.0f} sandbox-hours",
        f"assumed (job.assume): agent run of {assume.agent_median_s:g} s (95 %: {assume.agent_p95_s:g} s, "
        f"mean {rate.agent_mean_s:.0f} s), {assume.sampled_tokens} sampled and {assume.context_tokens} context tokens per rollout, "
        f"{assume.engine_tokens_per_s:g} tokens per second and engine GPU, {assume.trainer_tflops:g} TFLOP/s per trainer GPU",
    ):
        console.say(line)


def _size(shape: ModelShape) -> str:
    parameters = count_parameters(shape)
    parts = [f"{parameters.total:.4g} parameters"]
    if shape.experts:
        parts.append(f"{parameters.experts:.4g} of them in experts, {parameters.active:.4g} active")
    kinds = f"{shape.layers} layers"
    if shape.linear:
        kinds += f" ({sum(shape.linear.layers)} with gated DeltaNet)"
    return ", ".join([*parts, kinds, f"hidden {shape.hidden}", f"vocabulary {shape.vocab}"])


def _record(
    shape: ModelShape,
    layout: str,
    nodes: list[Node],
    trainer: list[Term],
    engine: EngineMemory | None,
    rate: Rates,
    faults: list[str],
) -> dict[str, Any]:
    return {
        "parameters": count_parameters(shape).total,
        "layout_refused": layout,
        "nodes": [asdict(node) for node in nodes],
        "trainer_gb": {term.name: round(term.gb, 3) for term in trainer},
        "engine_gb": {term.name: round(term.gb, 3) for term in engine.terms} if engine else None,
        "rates": {
            name: value if not isinstance(value, float) or math.isfinite(value) else None
            for name, value in asdict(rate).items()
        },
        "does_not_fit": faults,
    }
