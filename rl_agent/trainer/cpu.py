"""Patches with which Megatron-core runs without CUDA. They do nothing on a machine with a GPU.

The patches replace functions of torch and Megatron for the whole process. Import this module only in trainer processes,
never in a driver, an engine or the process of a test. Written for megatron-core 0.16.1: check each patch on an upgrade.
"""

from __future__ import annotations

import contextlib
import ctypes
import warnings
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CPU: Final = torch.device("cpu")
_FACTORIES: Final = ("zeros", "ones", "empty", "tensor", "full", "arange", "empty_like", "zeros_like", "ones_like")
_INSTALLED: Final = "_rl_agent_cpu"
"""Attribute of the torch module that marks it as patched. Patches are per process, like the module."""


def needed() -> bool:
    """Return whether this process has no CUDA device."""
    return not torch.cuda.is_available()


def install() -> None:
    """Patch torch. Call it before importing Megatron, which binds some of these names at import."""
    if not needed() or hasattr(torch, _INSTALLED):
        return
    _put(torch, _INSTALLED, True)
    warnings.filterwarnings(
        "ignore", message=".*CUDA_DEVICE_MAX_CONNECTIONS"
    )  # advice for GPUs, at every sharded layer
    _patch_device_queries()
    _patch_tensors()
    for name in _FACTORIES:
        _put(torch, name, _on_cpu(getattr(torch, name)))
    # Megatron decorates with torch.compile at import; on a CPU that means a C++ compiler run for each small function
    _put(torch, "compile", _without_compiling)


def patch_megatron() -> None:
    """Patch Megatron. Call it once after the import."""
    if not needed():
        return
    _patch_random_tracker()
    _patch_expert_dispatch()
    _patch_linear_attention()
    _patch_distributed_optimizer()


def return_memory() -> None:
    """Return freed memory to the system. Otherwise the C library keeps it from the engine and the sandboxes."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if needed() and trim is not None:
        trim(0)


def _put(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


def _patch_device_queries() -> None:
    _put(torch.cuda, "current_device", lambda: _CPU)
    _put(torch.cuda, "synchronize", lambda *_a, **_k: None)
    _put(torch.cuda, "set_device", lambda *_a, **_k: None)
    # make Megatron's random state tracker use CPU states
    _put(torch.cuda, "get_rng_state", lambda device="cuda": torch.get_rng_state())
    _put(torch.cuda.random, "get_rng_state", torch.cuda.get_rng_state)
    _put(torch.cuda, "set_rng_state", lambda state, device="cuda": torch.set_rng_state(state))
    _put(torch.cuda, "manual_seed", torch.manual_seed)
    # streams and events order work that a CPU does in order anyway
    _put(torch.cuda, "Stream", _NoStream)
    _put(torch.cuda, "Event", _NoStream)
    _put(torch.cuda, "current_stream", lambda *_a, **_k: _NoStream())
    _put(torch.cuda, "default_stream", lambda *_a, **_k: _NoStream())
    _put(torch.cuda, "stream", lambda *_a: contextlib.nullcontext())


def _patch_tensors() -> None:
    original = torch.Tensor.type

    def type_as_cuda(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return a CUDA type string, since the optimizer and gradient clipping accept no other tensors."""
        answer = original(self, *args, **kwargs)
        if isinstance(answer, str) and answer.startswith("torch.") and not answer.startswith("torch.cuda."):
            return "torch.cuda." + answer.removeprefix("torch.")
        return answer

    _put(torch.Tensor, "type", type_as_cuda)
    _put(torch.Tensor, "cuda", lambda self, *_a, **_k: self)
    _put(torch.nn.Module, "cuda", lambda self, *_a, **_k: self)
    _put(torch.Tensor, "record_stream", lambda _self, _stream: None)


class _NoStream:
    """Stand-in for a CUDA stream or event. Every method does nothing and returns the stream."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., _NoStream]:
        return lambda *_a, **_k: self

    def __enter__(self) -> _NoStream:
        return self

    def __exit__(self, *_exc: object) -> None:
        pass


def _on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a tensor factory that treats `device="cuda"` as the CPU."""

    def create(*args: Any, **kwargs: Any) -> torch.Tensor:
        device = kwargs.get("device")
        if device is not None and str(device).startswith("cuda"):
            kwargs["device"] = _CPU
        kwargs.pop("pin_memory", None)
        return factory(*args, **kwargs)

    return create


def _without_compiling(function: Any = None, **_options: Any) -> Any:
    return function if function is not None else lambda f: f


def _patch_random_tracker() -> None:
    from megatron.core.tensor_parallel import random  # noqa: PLC0415  (heavy; only after install())

    class CpuTracker(random.CudaRNGStatesTracker):  # type: ignore[misc]  # Megatron is untyped
        @contextlib.contextmanager
        def fork(self, name: str = random._MODEL_PARALLEL_RNG_TRACKER_NAME) -> Iterator[None]:
            outer = torch.get_rng_state()
            torch.set_rng_state(self.states_[name])
            try:
                yield
            finally:
                self.states_[name] = torch.get_rng_state()
                torch.set_rng_state(outer)

    def set_state(new_state: torch.Tensor, device: int = -1, graph_safe: bool = False) -> None:
        torch.set_rng_state(new_state)

    _put(random, "_set_cuda_rng_state", set_state)
    _put(random, "CudaRNGStatesTracker", CpuTracker)


def _patch_expert_dispatch() -> None:
    from megatron.core.transformer.moe import moe_utils, token_dispatcher  # noqa: PLC0415  (heavy; only after install())

    if not hasattr(moe_utils, "te_general_gemm"):  # 0.16 reads the name, but only Transformer Engine defines it
        moe_utils.te_general_gemm = None

    def to_cpu(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
        """Convert sizes to lists, as Gloo's all-to-all requires. Megatron converts only tensors on a GPU."""
        return tensor.detach().numpy() if as_numpy and torch.is_tensor(tensor) else tensor

    token_dispatcher.maybe_move_tensor_to_cpu = to_cpu


def _patch_linear_attention() -> None:
    from megatron.core.ssm import gated_delta_net  # noqa: PLC0415  (heavy; only after install())

    def unit_length(values: torch.Tensor) -> torch.Tensor:
        """Normalize to unit length, like the GPU kernel that the plain form of the layer also calls."""
        return values * torch.rsqrt(values.square().sum(-1, keepdim=True) + 1e-6)

    gated_delta_net.HAVE_FLA = True
    gated_delta_net.l2norm = unit_length


def _patch_distributed_optimizer() -> None:
    from megatron.core.optimizer.distrib_optimizer import (  # noqa: PLC0415  (heavy; only after install())
        DistributedOptimizer,
    )

    original = DistributedOptimizer._set_main_param_and_optimizer_states

    def with_step(self: Any, model_param: Any, tensors: dict[str, torch.Tensor]) -> Any:
        """Add `step`, which PyTorch's AdamW keeps beside the moments and the checkpoint keeps elsewhere."""
        group, order = self.model_param_group_index_map[model_param]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        if "step" in state and "step" not in tensors:
            tensors = {**tensors, "step": state["step"]}
        return original(self, model_param, tensors)

    DistributedOptimizer._set_main_param_and_optimizer_states = with_step
