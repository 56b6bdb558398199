"""Base config of a weight transport: how new weights reach the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from rl_agent.config.plug_in import PlugInConfig

if TYPE_CHECKING:
    from rl_agent.weights.base import WeightSender


@dataclass(kw_only=True)
class WeightsConfig(PlugInConfig, base=True):
    """Options that every weight transport has."""

    backend: ClassVar[str] = ""
    """Name under which the receiver is registered with vLLM (`--weight-transfer-config`)."""
    same_gpu: ClassVar[bool] = False
    """True if trainer and engine must share a GPU."""
    host: str = "auto"
    """Where the engine's workers find the trainer's first rank, if they connect to it; `auto`: loopback, or the address of
    its node in a Ray cluster."""
    bucket_mb: int = 0
    """Memory that the transport holds on each side while weights travel; 0: none."""

    @override
    def build(self) -> WeightSender:
        """Return the trainer's half."""
        raise NotImplementedError
