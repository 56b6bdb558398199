"""Equal advantage for every token. With a log-likelihood loss this is imitation learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.config.algo import AdvantageConfig

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(kw_only=True)
class ConstantConfig(AdvantageConfig):
    """Equal advantage for every token: imitation learning."""

    value: float = 1.0

    @override
    def build(self) -> Constant:
        return Constant(self)


class Constant:
    """See `ConstantConfig`."""

    def __init__(self, config: ConstantConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantages: [T] float32."""
        return np.full(len(batch.tokens), self.config.value, dtype=np.float32)
