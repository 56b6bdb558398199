"""Base config of an engine, which samples from the policy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from rl_agent.config.plug_in import PlugInConfig

if TYPE_CHECKING:
    from rl_agent.engine.base import EngineServer


class UpdateMode(StrEnum):
    """Handling of running generations when new weights arrive; docs/scaling.md compares the modes."""

    drain = "drain"
    """Running generations finish first, with the old weights."""
    keep = "keep"
    """Running generations pause, then continue with the new weights and the old KV cache. Nothing is recomputed."""
    abort = "abort"
    """Running generations end and are requested again: prompt and reply so far are recomputed with the new weights."""


@dataclass(kw_only=True)
class EngineConfig(PlugInConfig, base=True):
    """Options that every engine has."""

    runs_model: ClassVar[bool] = True
    """True if the engine holds the policy's weights. A scripted engine does not."""
    host: str = "auto"
    """Address that the engine listens on; `auto`: loopback, or the node's address in a Ray cluster. Anyone who reaches
    the engine can change its weights, so keep it on a private network."""
    port: int = 0
    """Port of the engine; 0: a free port."""
    update_mode: UpdateMode = UpdateMode.drain
    """Handling of running generations when new weights arrive."""
    dtype: str = "auto"
    """Type of weights and activations, for example bfloat16; `auto`: the engine's choice."""
    max_model_len: int | None = None
    """Maximum context length of the engine; null: `rollout.max_context_tokens`."""
    tensor_parallel: int = 1
    """Number of GPUs over which each engine is sharded."""
    gpu_memory_utilization: float | None = None
    """Fraction of the GPU's memory that the engine takes; null: the engine's default."""

    @override
    def build(self) -> EngineServer:
        """Return the server, which is also the factory of its clients."""
        raise NotImplementedError
