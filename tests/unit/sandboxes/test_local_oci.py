"""Container images: layers in order, white-outs honoured, nothing written outside, damage found."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.errors import ConfigError
from rl_agent.sandboxes.local.oci import root_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def layer(entries: Mapping[str, str | tuple[str, str] | None]) -> bytes:
    """A tar: text is a file, None a folder, a pair a link (`sym` or `hard`, target)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, value in entries.items():
            info = tarfile.TarInfo(name)
            info.uid, info.gid, info.mode, info.mtime = os.getuid(), os.getgid(), 0o755, 1_000_000_000
            if value is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(value, tuple):
                info.type = tarfile.SYMTYPE if value[0] == "sym" else tarfile.LNKTYPE
                info.linkname = value[1]
            data = value.encode() if isinstance(value, str) else b""
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def layout(folder: Path, *layers: bytes, architecture: str | None = None) -> Path:
    """An OCI layout with these layers, lowest first."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content), **more}

    manifest = {"layers": [blob(gzip.compress(content) if n % 2 else content) for n, content in enumerate(layers)]}
    kind = {} if architecture is None else {"platform": {"architecture": architecture, "os": "linux"}}
    inner = {"manifests": [blob(json.dumps(manifest).encode(), **kind)]}
    (folder / "index.json").write_text(json.dumps({"manifests": [blob(json.dumps(inner).encode())]}))
    return folder


BASE = layer({"etc": None, "etc/name": "one", "etc/old": "x", "lib": None, "lib/a": "a", "bin": ("sym", "/lib")})


def test_layers_are_applied_in_order_and_white_outs_remove_what_is_below(tmp_path: Path) -> None:
    top = layer(
        {"etc/name": "two", "etc/.wh.old": "", "lib/.wh..wh..opq": "", "lib/b": "b", "lib/c": ("hard", "lib/b")}
    )
    root = root_of(layout(tmp_path / "image", BASE, top), tmp_path / "cache")
    assert sorted(str(p.relative_to(root)) for p in root.rglob("*")) == [
        "bin",
        "etc",
        "etc/name",
        "lib",
        "lib/b",
        "lib/c",
    ]
    assert (root / "etc" / "name").read_text() == "two"
    assert (root / "lib" / "c").stat().st_nlink == 2
    assert (root / "etc" / "name").stat().st_mtime == 1_000_000_000


def test_an_image_is_unpacked_once_and_the_same_from_layout_and_archive(tmp_path: Path) -> None:
    folder = layout(tmp_path / "image", BASE)
    root = root_of(folder, tmp_path / "cache")
    (root / "mark").touch()
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(folder, arcname=".")
    assert root_of(tmp_path / "image.tar", tmp_path / "cache") == root
    assert (root / "mark").exists()


def test_dockers_archives_are_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "docker.tar", "w") as archive:
        for name, content in {
            "m.json": b"",
            "l/layer.tar": BASE,
            "manifest.json": b'[{"Layers": ["l/layer.tar"]}]',
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert (root_of(tmp_path / "docker.tar", tmp_path / "cache") / "lib" / "a").read_text() == "a"


def test_absolute_links_lead_to_the_images_own_folders(tmp_path: Path) -> None:
    top = layer({"bin/tool": "through the link"})
    root = root_of(layout(tmp_path / "image", BASE, top), tmp_path / "cache")
    assert (root / "lib" / "tool").read_text() == "through the link"


@pytest.mark.parametrize(
    "entries",
    [
        {"../outside": "x"},
        {"a": ("sym", "../../.."), "a/outside": "x"},
        {"a": ("sym", "/"), "a/outside": "x"},
        {"a": ("hard", "../outside")},
        {"a": ("sym", "b"), "b": ("sym", "a"), "a/x": "x"},
    ],
)
def test_no_layer_writes_outside(entries: dict[str, Any], tmp_path: Path) -> None:
    before = sorted(p.name for p in tmp_path.iterdir())
    try:
        root_of(layout(tmp_path / "image", layer(entries)), tmp_path / "cache")
    except ConfigError as error:
        assert "Use an OCI layout" in str(error)  # noqa: PT017 (some are refused, others led back inside)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*before, "cache", "image"])
    assert not (tmp_path / "outside").exists()
    assert not list((tmp_path / "cache").glob(".unpacking-*"))


def test_a_damaged_blob_is_found_and_nothing_is_kept(tmp_path: Path) -> None:
    folder = layout(tmp_path / "image", BASE)
    damaged = folder / "blobs" / "sha256" / hashlib.sha256(BASE).hexdigest()
    damaged.write_bytes(damaged.read_bytes() + b"\0")
    with pytest.raises(ConfigError, match="damaged"):
        root_of(folder, tmp_path / "cache")
    assert [p for p in (tmp_path / "cache").iterdir() if not p.name.endswith(".lock")] == []


def test_an_image_of_another_machine_and_what_is_no_image_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="riscv64"):
        root_of(layout(tmp_path / "image", BASE, architecture="riscv64"), tmp_path / "cache")
    (tmp_path / "text").write_text("no image")
    for path in (tmp_path / "text", tmp_path / "missing"):
        with pytest.raises(ConfigError, match="Use an OCI layout"):
            root_of(path, tmp_path / "cache")
