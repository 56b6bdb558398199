"""A Podman for the session, where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import podman

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def podman_url() -> Iterator[str | None]:
    """None where there is no Podman: then its tests are skipped."""
    with podman.service_if_installed() as url:
        yield url
