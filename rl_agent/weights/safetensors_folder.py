"""Folders of safetensors files in Hugging Face's layout: lazy reading, sharded writing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from safetensors import safe_open
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import torch

SHARD_BYTES: Final = 4 * 1024**3
"""Maximum size of a shard. A shard is held in memory until it is full."""


class TensorFolder(Mapping[str, "torch.Tensor"]):
    """Tensors of a folder by name. Each tensor is read on access."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, Path] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, "pt") as handle:
                self._files |= dict.fromkeys(handle.keys(), path)

    @property
    def names(self) -> list[str]:
        """Return all names, or an empty list if the folder contains no weights."""
        return list(self._files)

    @override
    def __getitem__(self, name: str) -> torch.Tensor:
        with safe_open(self._files[name], "pt") as handle:
            tensor: torch.Tensor = handle.get_tensor(name)
            return tensor

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    @override
    def __len__(self) -> int:
        return len(self._files)


def write_tensors(folder: Path, tensors: Iterable[tuple[str, torch.Tensor]], *, shard_bytes: int = SHARD_BYTES) -> int:
    """Write tensors to `folder` as they arrive, with an index for several files. Returns the number of tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[tuple[Path, list[str]]] = []
    shard: dict[str, torch.Tensor] = {}
    size = total = 0
    for name, tensor in tensors:
        own = tensor.numel() * tensor.element_size()
        if shard and size + own > shard_bytes:
            files.append(_write_shard(folder, len(files), shard))
            shard, size = {}, 0
        # copy, so that the next optimizer step cannot change tensors that are not written yet
        shard[name] = tensor.detach().to("cpu", copy=True).contiguous()
        size += own
        total += own
    files.append(_write_shard(folder, len(files), shard))
    if len(files) == 1:
        files[0][0].rename(folder / "model.safetensors")
    else:
        _name_shards(folder, files, total)
    return sum(len(names) for _, names in files)


def _write_shard(folder: Path, number: int, shard: dict[str, torch.Tensor]) -> tuple[Path, list[str]]:
    from safetensors.torch import save_file  # noqa: PLC0415 (imports torch, which the controller does not need)

    path = folder / f".shard-{number}.safetensors"
    save_file(shard, path, metadata={"format": "pt"})
    return path, list(shard)


def _name_shards(folder: Path, files: list[tuple[Path, list[str]]], total: int) -> None:
    where: dict[str, str] = {}
    for number, (path, names) in enumerate(files):
        final = f"model-{number + 1:05d}-of-{len(files):05d}.safetensors"
        path.rename(folder / final)
        where |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")
