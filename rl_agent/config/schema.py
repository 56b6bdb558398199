"""The root of the schema, and the registration of every group's schema with Hydra.

Schemas stand under `schema/<group>/<name>` in Hydra's store, so that they do not appear among the options. Root fields of
groups are `Any = MISSING`: a user's YAML without a schema composes too, and a deleted group is an error.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from rl_agent.config import (
    adapter,
    cluster,
    data,
    engine,
    grader,
    harness,
    job,
    model,
    rollout,
    sandbox,
    tracking,
    trainer,
    weights,
)
from rl_agent.config.algo import AlgorithmConfig
from rl_agent.config.plug_in import PlugInConfig

GROUPS: Final[Mapping[str, Mapping[str, type]]] = {
    "job": job.SCHEMAS,
    "data": data.SCHEMAS,
    "harness": harness.SCHEMAS,
    "adapter": adapter.SCHEMAS,
    "sandbox": sandbox.SCHEMAS,
    "grader": grader.SCHEMAS,
    "rollout": rollout.SCHEMAS,
    "model": model.SCHEMAS,
    "engine": engine.SCHEMAS,
    "trainer": trainer.SCHEMAS,
    "weights": weights.SCHEMAS,
    "cluster": cluster.SCHEMAS,
    "tracking": tracking.SCHEMAS,
}
"""Group -> schema name -> dataclass."""


@dataclass(slots=True, kw_only=True)
class Config:
    """A whole run."""

    job: Any = MISSING
    data: Any = MISSING
    harness: Any = MISSING
    adapter: Any = MISSING
    sandbox: Any = MISSING
    grader: Any = MISSING
    rollout: Any = MISSING
    algo: AlgorithmConfig = MISSING
    model: Any = MISSING
    engine: Any = MISSING
    trainer: Any = MISSING
    weights: Any = MISSING
    cluster: Any = MISSING
    tracking: Any = MISSING

    seed: int = 0
    """Seeds the data order, the sampler and the trainer."""
    resume: str | None = None
    """A run folder to continue, in place, from its last checkpoint; auto: the newest of the
    same job below `output` that has not ended, or a new one."""
    output: str = "outputs"
    """Where run folders are made: `<output>/<date>/<time>/`."""
    tuned_for: str | None = None
    """Set by experiments whose values fit one model only: that model's `model.name`."""


def register() -> None:
    """Put every schema into Hydra's store; may be called again."""
    store = ConfigStore.instance()
    store.store(group="schema", name="root", node=Config)
    for group, schemas in GROUPS.items():
        for name, node in schemas.items():
            store.store(group=f"schema/{group}", name=name, node=node)
    for part in ("advantage", "loss", "correction", "kl", "aggregation", "shaping"):
        package = importlib.import_module(f"rl_agent.algo.{part}")
        for found in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{found.name}")
            for value in vars(module).copy().values():
                own = isinstance(value, type) and value.__module__ == module.__name__
                if own and issubclass(value, PlugInConfig):
                    store.store(group=f"algo/{part}", name=found.name, node=value)
