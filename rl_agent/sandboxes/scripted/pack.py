"""Packs a folder for its way into a sandbox."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def pack(folder: Path, target: Path) -> None:
    """A tar of a folder's content that depends on nothing else."""
    with tarfile.open(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            info = archive.gettarinfo(path, arcname=str(path.relative_to(folder)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = 0
            if info.isreg():
                with path.open("rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)
