"""The `disk` backend, trainer's half: each weight version is a folder of safetensors files that the engine reads."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from rl_agent.config.weights import WeightsConfig
from rl_agent.errors import ConfigError, WeightPushError
from rl_agent.weights.base import WeightUpdate
from rl_agent.weights.safetensors_folder import write_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from rl_agent.weights.buckets import TensorInfo


@dataclass(kw_only=True)
class DiskConfig(WeightsConfig):
    """Transfer through safetensors files in a folder that both trainer and engine can access."""

    backend: ClassVar[str] = "disk"
    folder: str | None = None
    """Absolute path of the folder for versions, for example under /dev/shm. null: `weights/` in the run folder."""
    keep: int = 2
    """Number of versions kept. The engine may still be reading the second newest."""

    @override
    def build(self) -> DiskSender:
        return DiskSender(self)


class DiskSender:
    """Sender for `DiskConfig`. Call `open` first, then `send` for each version."""

    def __init__(self, config: DiskConfig) -> None:
        folder, keep = config.folder, config.keep
        if folder is not None and not Path(folder).is_absolute():
            raise ConfigError(f"weights.folder: {folder}: not an absolute path. Set an absolute path.")
        if keep < 1:
            raise ConfigError(f"weights.keep={keep}: less than 1. Set it to at least 1.")
        self._configured = Path(folder) if folder else None
        self._keep = keep
        self._folder: Path | None = None

    def open(self, run_folder: Path, receivers: int) -> None:
        """Create the folder for versions: `weights/` in the run folder, or the run's name in the configured folder.

        Deletes the versions of an earlier attempt of the run, whose numbers may be used again. Any number of workers
        can read.
        """
        del receivers
        self._folder = self._configured / run_folder.name if self._configured else run_folder.resolve() / "weights"
        self.close()
        self._folder.mkdir(parents=True)

    def regroup(self, receivers: int) -> None:
        """Do nothing: any number of workers can read."""

    def close(self) -> None:
        """Delete all versions."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def announce(self, tensors: Sequence[TensorInfo], version: int) -> None:
        """Do nothing: the engine reads after `send`."""

    def send(self, tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> WeightUpdate:
        """Write the tensors to the folder that the engine reads. Raises WeightPushError."""
        if self._folder is None:
            raise WeightPushError("no folder for the weights. Call DiskSender.open first.")
        final = self._folder / f"v{version:08d}"
        partial = self._folder / f".{final.name}"
        try:
            shutil.rmtree(partial, ignore_errors=True)
            count = write_tensors(partial, tensors)
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)
            self._forget_old()
        except OSError as error:
            raise WeightPushError(f"weights number {version} cannot be written to {final}: {error}") from error
        return WeightUpdate(version=version, update_info={"path": str(final), "tensors": count})

    def _forget_old(self) -> None:
        versions = sorted(path for path in (self._folder or Path()).glob("v*") if path.is_dir())
        for path in versions[: -self._keep]:
            shutil.rmtree(path)
