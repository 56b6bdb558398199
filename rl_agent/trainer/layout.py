"""The process group: this rank, and Megatron's groups over all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from torch._C._distributed_c10d import HashStore, TCPStore

from rl_agent.errors import ConfigError
from rl_agent.trainer.shards import Shards

if TYPE_CHECKING:
    from rl_agent.trainer.megatron import MegatronConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLayout:
    """Position of this rank. The defaults are those of a single-process trainer."""

    rank: int = 0
    world_size: int = 1
    master_address: str = "127.0.0.1"
    master_port: int = 0
    """Port on which rank 0 opens the store. A single rank does not use it."""
    local_rank: int = 0
    """Index of the GPU on the machine."""


def expert_tensor_parallel(config: MegatronConfig) -> int:
    """Return the number of ranks over which each expert is sharded.

    Whole experts give larger matrix products, but Megatron sums the gradients of their copies only with expert
    parallelism.
    """
    return config.tensor_parallel if config.expert_parallel == 1 else 1


def join(layout: RankLayout, config: MegatronConfig, seed: int) -> torch.device:
    """Join the other ranks, and return the device of this one. `leave` undoes it."""
    if layout.world_size != config.world_size:
        raise ConfigError(
            f"the trainer has {layout.world_size} ranks, but trainer.data_parallel x tensor_parallel x "
            f"pipeline_parallel x context_parallel is {config.world_size}. Start as many ranks."
        )
    timeout = timedelta(seconds=config.timeout_s)
    store = (
        HashStore()
        if layout.world_size == 1
        else TCPStore(
            layout.master_address, layout.master_port, layout.world_size, is_master=layout.rank == 0, timeout=timeout
        )
    )
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(layout.local_rank)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if gpu else "gloo",
        store=store,
        rank=layout.rank,
        world_size=layout.world_size,
        timeout=timeout,
    )
    parallel_state.initialize_model_parallel(
        config.tensor_parallel,
        config.pipeline_parallel,
        context_parallel_size=config.context_parallel,
        expert_model_parallel_size=config.expert_parallel,
        expert_tensor_parallel_size=expert_tensor_parallel(config),
    )
    tensor_parallel.model_parallel_cuda_manual_seed(seed)
    return torch.device("cuda", layout.local_rank) if gpu else torch.device("cpu")


def leave() -> None:
    """Leave the group, so that the same process can join another."""
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    if dist.is_initialized():
        dist.destroy_process_group()


def sum_over_copies(values: torch.Tensor) -> torch.Tensor:
    """Sum in place over the copies of the model.

    Ranks that share a sequence have gathered it, so each holds the whole value.
    """
    dist.all_reduce(values, dist.ReduceOp.SUM, group=parallel_state.get_data_parallel_group())
    return values


def max_over_copies(values: torch.Tensor) -> torch.Tensor:
    """Take the maximum in place over the copies of the model."""
    dist.all_reduce(values, dist.ReduceOp.MAX, group=parallel_state.get_data_parallel_group())
    return values


def is_last_stage() -> bool:
    """Return whether this rank's pipeline stage has the predictions."""
    return bool(parallel_state.is_pipeline_last_stage())


def from_last_stage(values: torch.Tensor) -> torch.Tensor:
    """Broadcast the values of the last pipeline stage in place to every stage."""
    if parallel_state.get_pipeline_model_parallel_world_size() > 1:
        last = parallel_state.get_pipeline_model_parallel_last_rank()
        dist.broadcast(values, last, group=parallel_state.get_pipeline_model_parallel_group())
    return values


def metrics_from_last_stage(metrics: dict[str, float]) -> dict[str, float]:
    """Return the metrics of the last pipeline stage on every stage."""
    if parallel_state.get_pipeline_model_parallel_world_size() == 1:
        return metrics
    carried = [metrics]
    last = parallel_state.get_pipeline_model_parallel_last_rank()
    dist.broadcast_object_list(carried, last, group=parallel_state.get_pipeline_model_parallel_group())
    return carried[0]


def shards(*, sequence_parallel: bool) -> Shards:
    """Return how the ranks share a micro-batch."""
    return Shards(
        context_ranks=parallel_state.get_context_parallel_world_size(),
        context_rank=parallel_state.get_context_parallel_rank(),
        sequence_ranks=parallel_state.get_tensor_model_parallel_world_size() if sequence_parallel else 1,
    )


def gather_predictions(values: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Gather the predictions of a micro-batch from all ranks that share it: [h] -> [t].

    Each of these ranks then computes the same loss. The gradient of a value goes back to the rank that holds the value.
    """
    whole: torch.Tensor = gather_from_sequence_parallel_region(
        values, tensor_parallel_output_grad=False, group=parallel_state.get_context_parallel_group()
    )
    return whole[order]
