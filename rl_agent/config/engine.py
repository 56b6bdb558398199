"""Schema of `engine/`: what samples from the policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from omegaconf import MISSING


class UpdateMode(StrEnum):
    """What becomes of generations that are running when new weights come; docs/scaling.md compares them."""

    drain = "drain"
    """They finish first, with the weights that they began with."""
    keep = "keep"
    """They stand still and go on with the new weights; what was computed with the old ones stays. Nothing is computed again."""
    abort = "abort"
    """They end with what they have and are asked for anew: prompt and reply so far are computed again, with the new weights."""


@dataclass(slots=True, kw_only=True)
class VllmConfig:
    """vLLM's own server, in a process tree of its own."""

    _target_: str = "rl_agent.engine.vllm_server.VllmServer"
    host: str = "auto"
    """Where it listens; `auto`: loopback, or the node's own address in a cluster of Ray's. Whoever reaches it can change its
    weights, so it belongs on a private network."""
    port: int = 0
    """0: a free one."""
    update_mode: UpdateMode = UpdateMode.drain
    """What becomes of generations that are running when new weights come."""
    dtype: str = "auto"
    max_model_len: int | None = None
    """null: `rollout.max_context_tokens`."""
    max_num_seqs: int = 256
    tensor_parallel: int = 1
    eager: bool = False
    """Skip compilation: starts faster, samples slower."""
    gpu_memory_utilization: float | None = None
    cpu_kv_cache_gb: int | None = None
    """CPU only: memory for the KV cache."""
    cpu_threads_bind: str | None = None
    """CPU only: cores of the OpenMP threads, as in vLLM's VLLM_CPU_OMP_THREADS_BIND."""
    nice: int = 0
    """Process niceness; below 0 (root) it goes before the agents on a shared machine."""
    startup_timeout_s: float = 900.0
    request_timeout_s: float = 1800.0
    probe_tolerance: float = MISSING
    """Largest difference between the log-probabilities of trainer and engine that a weight push may show."""
    extra_args: list[str] = field(default_factory=list)
    """Appended to vLLM's command line."""


@dataclass(slots=True, kw_only=True)
class DemonstratorConfig:
    """A script that solves toy tasks, in place of a policy."""

    _target_: str = "rl_agent.embedded.demonstrator.Demonstrator"
    style: str = "claude_code"
    """The agent CLI whose tools it calls."""
    delay_s: float = 0.0
    """How long each reply takes."""


SCHEMAS: Final = {"vllm": VllmConfig, "demonstrator": DemonstratorConfig}
