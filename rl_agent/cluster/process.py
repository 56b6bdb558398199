"""What every process of a run sets up first: its log in the run folder, and quiet libraries."""

from __future__ import annotations

import gc
import logging
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def set_up(log_file: Path) -> None:
    """Log this process to `log_file`."""
    handler = logging.FileHandler(log_file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
    warnings.simplefilter("once")


def exempt_loaded_objects() -> None:
    """Keep what is alive now out of garbage collection.

    Libraries alone are 360,000 objects, and a full pass over them stops an event loop for a fifth of a second. To be called once
    everything is loaded.
    """
    gc.collect()
    gc.freeze()
