"""The engine's half of the backends: runs inside vLLM's workers, and is imported by nobody else.

vLLM imports this module in every worker because of `--worker-extension-cls rl_agent.weights.vllm_receiver.WorkerExtension`; the
import registers our backends, which `--weight-transfer-config` then names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.platforms import current_platform

from rl_agent.errors import WeightPushError
from rl_agent.weights.safetensors_folder import TensorFolder

if TYPE_CHECKING:
    from collections.abc import Iterable


class LayerwiseReceiver(WeightTransferEngine):  # type: ignore[misc]  # vLLM is not checked
    """What all our backends share: weights go through vLLM's own loader, layer by layer, and its kernels are packed anew."""

    def start_weight_update(self) -> None:
        """Bring the layers back into the form in which they can be loaded."""
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """Bring the layers into the form in which they run."""
        finalize_layerwise_reload(self.model, self.model_config)
        if current_platform.is_cpu():
            repack_tied_head(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Receive one version."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def shutdown(self) -> None:
        """Nothing is held between updates."""

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Stream Hugging Face tensors into the model."""
        self.model.load_weights(tensors)


def repack_tied_head(model: torch.nn.Module) -> None:
    """VLLM 0.32 on CPUs keeps a packed copy of a tied output layer, which no reload refreshes: it would go on with old weights."""
    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)


@dataclass
class DiskInit(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is not checked
    """The disk backend needs no meeting point."""


@dataclass
class DiskUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]  # vLLM is not checked
    """One version in a folder; see `DiskSender.send`."""

    path: str
    tensors: int
    """How many there must be."""


class DiskReceiver(LayerwiseReceiver):
    """Reads the folder that `DiskSender` wrote."""

    init_info_cls = DiskInit
    update_info_cls = DiskUpdate

    def init_transfer_engine(self, init_info: DiskInit) -> None:
        """Nothing to set up."""

    def receive_weights(self, update_info: DiskUpdate) -> None:
        """Load all tensors of the folder. Raises WeightPushError when there are not as many as were sent."""
        folder = TensorFolder(Path(update_info.path))
        if len(folder) != update_info.tensors:
            raise WeightPushError(
                f"{update_info.path} holds {len(folder)} tensors, but {update_info.tensors} were sent"
            )
        self.load((name, folder[name].to(self.device)) for name in folder)


class WorkerExtension:
    """vLLM mixes this class into its workers; importing its module is all that we need it for."""


for _name, _engine in (("disk", DiskReceiver),):
    if _name not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(_name, _engine)
