"""Linear attention (gated delta rule) over packed sequences. Megatron's own layer takes only padded ones."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.ssm.gated_delta_net import GatedDeltaNet, GatedDeltaNetSubmodules
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    copy_to_tensor_model_parallel_region,
)
from megatron.core.transformer.spec_utils import ModuleSpec
from torch import nn
from torch.nn import functional
from typing_extensions import override

if TYPE_CHECKING:
    from rl_agent.trainer.layers import PackedSequences, Run


class OutputNorm(nn.Module):
    """RMSNorm of a head's output.

    It scales by its weight alone; the model's other norms scale by one plus the weight.
    """

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-6, **_unused: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.eps = eps

    @override
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalize over the last dimension."""
        # each tensor-parallel rank has some of the heads; Megatron does not sum their gradients of this weight
        weight = copy_to_tensor_model_parallel_region(self.weight)
        return functional.rms_norm(hidden, self.weight.shape, weight, self.eps)


class PackedGatedDeltaNet(GatedDeltaNet):  # type: ignore[misc]  # Megatron is untyped
    """Linear attention over padded batches of similarly long sequences.

    Padding comes last, where it affects no token.
    """

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Any = None,
        *,
        packed_seq_params: PackedSequences,
        **_unused: Any,
    ) -> tuple[torch.Tensor, None]:
        """Apply the layer to each run of sequences: [t, 1, hidden] -> [t, 1, hidden]."""
        outputs = [self._apply_run(run, hidden_states[run.start : run.end, 0]) for run in packed_seq_params.runs]
        return torch.cat(outputs)[:, None], None

    def _apply_run(self, run: Run, hidden: torch.Tensor) -> torch.Tensor:
        places = hidden if run.gather is None else hidden[run.gather]
        padded = places.view(run.sequences, run.longest, -1).transpose(0, 1)
        output, _no_bias = super().forward(padded, None)
        flat: torch.Tensor = output.transpose(0, 1).flatten(0, 1)
        return flat if run.scatter is None else flat[run.scatter]


def linear_attention_layer(softmax: Any, *, gpu: bool) -> Any:
    """Return the layer spec `softmax` with linear attention instead of its own."""
    if gpu:
        from megatron.core.extensions.transformer_engine import (  # noqa: PLC0415  (GPUs only)
            TELayerNormColumnParallelLinear,
            TERowParallelLinear,
        )

        columns, rows = TELayerNormColumnParallelLinear, TERowParallelLinear
    else:
        columns, rows = ColumnParallelLinear, RowParallelLinear
    layer = ModuleSpec(module=softmax.module, params=softmax.params, submodules=copy(softmax.submodules))
    layer.submodules.self_attention = ModuleSpec(
        module=PackedGatedDeltaNet,
        submodules=GatedDeltaNetSubmodules(in_proj=columns, out_norm=OutputNorm, out_proj=rows),
    )
    return layer
