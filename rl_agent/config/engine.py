"""Base config of an engine: what samples from the policy."""

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
    """They finish first, with the weights that they began with."""
    keep = "keep"
    """They stand still and go on with the new weights; what was computed with the old ones stays. Nothing is computed again."""
    abort = "abort"
    """They end with what they have and are asked for anew: prompt and reply so far are computed again, with the new weights."""


@dataclass(kw_only=True)
class EngineConfig(PlugInConfig, base=True):
    """Options that every engine has."""

    runs_model: ClassVar[bool] = True
    """True if it holds the policy's weights. A scripted engine does not."""
    host: str = "auto"
    """Where it listens; `auto`: loopback, or the node's own address in a Ray cluster. Everybody who reaches it can change its
    weights, so keep it on a private network."""
    port: int = 0
    """0: a free one."""
    update_mode: UpdateMode = UpdateMode.drain
    """Handling of running generations when new weights arrive."""
    dtype: str = "auto"
    max_model_len: int | None = None
    """null: `rollout.max_context_tokens`."""
    tensor_parallel: int = 1
    gpu_memory_utilization: float | None = None
    """Share of the GPU's memory that the engine takes; null: the engine's own default."""

    @override
    def build(self) -> EngineServer:
        """Return the server, which is also the factory of its clients."""
        raise NotImplementedError
