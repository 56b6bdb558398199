"""Base config of a weight transport, which brings new weights to the engine."""

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
    """Address of the trainer's first rank for the engine's workers, if they connect to it; `auto`: loopback, or the
    address of its node in a Ray cluster."""
    bucket_mb: int = 0
    """Memory of the transport on each side during a push; 0: none."""

    @override
    def build(self) -> WeightSender:
        """Return the trainer's side of the transport."""
        raise NotImplementedError
