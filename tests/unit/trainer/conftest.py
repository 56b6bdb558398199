"""Runs tests in a process of their own: without CUDA the trainer patches torch for the whole process.

A test with the mark `trainer_process` is called, by name and with its fixtures' values, in one spawned process that all of them
share (importing Megatron takes seconds); so its fixtures must be values that can travel.
"""

from __future__ import annotations

import importlib
import json
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import pytest
from trainer_cases import TINY, import_megatron

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", "trainer_process: runs in the shared trainer process")


@pytest.fixture(scope="session", autouse=True)
def megatron_worker() -> Iterator[ProcessPoolExecutor]:
    """The process, with Megatron imported."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(import_megatron).result(timeout=300)
        yield pool


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    """A folder with a tiny Qwen3's config.json and no weights."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a marked test over there."""
    if pyfuncitem.get_closest_marker("trainer_process") is None:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    values = {name: pyfuncitem.funcargs[name] for name in names}
    pool: ProcessPoolExecutor = pyfuncitem.funcargs["megatron_worker"]
    name = pyfuncitem.originalname or pyfuncitem.name
    failure = pool.submit(_call, pyfuncitem.module.__name__, name, values).result(timeout=300)
    if failure:
        pytest.fail(failure, pytrace=False)
    return True


def _call(module: str, name: str, values: dict[str, Any]) -> str | None:
    """What went wrong, as text: not every exception can travel."""
    try:
        getattr(importlib.import_module(module), name)(**values)
    except BaseException:  # noqa: BLE001  everything is reported by the other process
        return traceback.format_exc()
    return None
