"""Checkpoints in Megatron's distributed format.

Any parallel layout can read them; the same layout restores them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.optimizer.cpu_offloading import HybridDeviceOptimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

from rl_agent.errors import ConfigError
from rl_agent.trainer.checkpoint_writer import Writing, without_future_warnings

if TYPE_CHECKING:
    from pathlib import Path

SHARDING: Final = {
    "distrib_optim_sharding_type": "fully_reshardable",
    "distrib_optim_fully_reshardable_mem_efficient": False,
    "chained_optim_avoid_prefix": True,
    "singleton_local_shards": False,
}
"""Layout of the optimizer state that another number of ranks can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounters:
    """Counters of a trainer that a checkpoint keeps."""

    steps: int
    """Number of batches that changed the weights."""
    version: int
    """Version of the weights last pushed."""


def begin(folder: Path, wrapped: Any, optimizer: Any, counters: StepCounters) -> Writing:
    """Copy all state that the next step depends on, and write it while training continues.

    Call `finish` of the result.
    """
    if dist.get_rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    stepped = any(adam.state for adam in _adams(optimizer))
    state = _state(wrapped, optimizer if stepped else None, loading=False)
    state["progress"] = {"steps": counters.steps, "version": counters.version}
    facts = {"ranks": dist.get_world_size(), "stepped": stepped, "distributed_optimizer": _is_distributed(optimizer)}
    return Writing(folder, state, SHARDING | facts)


def load(folder: Path, wrapped: Any, optimizer: Any) -> StepCounters:
    """Read a checkpoint under this rank's layout. Raises ConfigError if there is none."""
    if not (folder / "metadata.json").is_file():
        raise ConfigError(f"{folder}: metadata.json not found. Give the folder of a complete trainer checkpoint.")
    written = dist_checkpointing.load_content_metadata(str(folder)) or {}
    random = _random_states()
    if written["stepped"]:
        _require_same_kind(folder, written.get("distributed_optimizer"), optimizer)
        _give_adam_its_state(optimizer)
    state = _state(wrapped, optimizer if written["stepped"] else None, loading=True)
    same_ranks = written["ranks"] == dist.get_world_size()
    if not same_ranks:  # random states belong to ranks, so a run under another layout keeps its own
        del state["random"]
    state["progress"] = {}
    with without_future_warnings():
        loaded = dist_checkpointing.load(state, str(folder))
    wrapped.module.load_state_dict(loaded["model"])
    if written["stepped"]:
        optimizer.load_state_dict(loaded["optimizer"])
        _unshare_steps(optimizer)
    else:
        _forget_steps(optimizer)
    _set_random_states(loaded["random"] if same_ranks else random)
    return StepCounters(steps=loaded["progress"]["steps"], version=loaded["progress"]["version"])


def _state(wrapped: Any, optimizer: Any | None, *, loading: bool) -> dict[str, Any]:
    metadata = SHARDING | {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    model = wrapped.module.sharded_state_dict(metadata=metadata)
    random = ShardedObject("random", _random_states(), (dist.get_world_size(),), (dist.get_rank(),))
    state = {"model": model, "random": random}
    if optimizer is not None:
        state["optimizer"] = optimizer.sharded_state_dict(model, is_loading=loading, metadata=metadata)
    return state


def _is_distributed(optimizer: Any) -> bool:
    return any(isinstance(one, DistributedOptimizer) for one in getattr(optimizer, "chained_optimizers", [optimizer]))


def _require_same_kind(folder: Path, written: bool | None, optimizer: Any) -> None:
    """Raise ConfigError if the kind of optimizer differs: Megatron stores the two kinds differently."""
    if written is not None and written != _is_distributed(optimizer):
        raise ConfigError(
            f"{folder}: the checkpoint was written with trainer.distributed_optimizer={str(written).lower()}. Set the same "
            "value; the rest of the layout may change."
        )


def _random_states() -> dict[str, Any]:
    states = {"torch": torch.get_rng_state(), "tracker": tensor_parallel.get_cuda_rng_tracker().get_states()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    tensor_parallel.get_cuda_rng_tracker().set_states(states["tracker"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def _adams(optimizer: Any) -> list[torch.optim.Optimizer]:
    return [chained.optimizer for chained in getattr(optimizer, "chained_optimizers", [optimizer])]


def _give_adam_its_state(optimizer: Any) -> None:
    """Create the state of a fresh AdamW to load into. Megatron's own preparation omits `step`."""
    for adam in _adams(optimizer):
        if isinstance(adam, HybridDeviceOptimizer):
            adam.dummy_step()  # loading overwrites its changes to the weights
            continue
        for group in adam.param_groups:
            for parameter in group["params"]:
                if not adam.state[parameter]:
                    adam.state[parameter].update(
                        step=torch.tensor(0.0),
                        exp_avg=torch.zeros_like(parameter.data),
                        exp_avg_sq=torch.zeros_like(parameter.data),
                    )


def _unshare_steps(optimizer: Any) -> None:
    """Give each parameter its own `step` tensor.

    Megatron shares one, which AdamW would increment once per parameter.
    """
    for adam in _adams(optimizer):
        for state in adam.state.values():
            if torch.is_tensor(state.get("step")):
                state["step"] = state["step"].clone()


def _forget_steps(optimizer: Any) -> None:
    """Clear the optimizer for a checkpoint from before the first step. Megatron cannot write an empty state."""
    for adam in _adams(optimizer):
        adam.state.clear()
    optimizer.reload_model_params()
