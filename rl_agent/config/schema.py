"""Root of the configuration. Every group has the type of its base config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omegaconf import MISSING

from rl_agent.config.adapter import AdapterConfig
from rl_agent.config.algo import AlgorithmConfig
from rl_agent.config.cluster import ClusterConfig
from rl_agent.config.data import DataConfig
from rl_agent.config.engine import EngineConfig
from rl_agent.config.grader import GraderConfig
from rl_agent.config.harness import HarnessConfig
from rl_agent.config.job import JobConfig
from rl_agent.config.model import ModelConfig
from rl_agent.config.rollout import RolloutConfig
from rl_agent.config.sandbox import SandboxConfig
from rl_agent.config.tracking import TrackingConfig
from rl_agent.config.trainer import TrainerConfig
from rl_agent.config.weights import WeightsConfig

GUARD_MARGIN_S: Final = 180.0
"""Default time limit of a rollout beyond the limits of agent and grading."""


@dataclass(kw_only=True)
class Config:
    """Configuration of a run."""

    job: JobConfig = MISSING
    data: DataConfig = MISSING
    harness: HarnessConfig = MISSING
    adapter: AdapterConfig = MISSING
    sandbox: SandboxConfig = MISSING
    grader: GraderConfig = MISSING
    rollout: RolloutConfig = MISSING
    algo: AlgorithmConfig = MISSING
    model: ModelConfig = MISSING
    engine: EngineConfig = MISSING
    trainer: TrainerConfig = MISSING
    weights: WeightsConfig = MISSING
    cluster: ClusterConfig = MISSING
    tracking: TrackingConfig = MISSING

    seed: int = 0
    """Seed of the data order, the sampler and the trainer."""
    resume: str | None = None
    """Run folder to continue in place from its last checkpoint; `auto`: the newest unfinished run of the same job in
    `output`, or a new run."""
    output: str = "outputs"
    """Parent folder of run folders: `<output>/<date>/<time>/`."""
    tuned_for: str | None = None
    """`model.name` of the only model for which an experiment's values are valid; null: any."""

    @property
    def guard_s(self) -> float:
        """Return the time limit of a whole rollout."""
        return self.rollout.guard_s or self.harness.time_budget_s + self.grader.duration_s + GUARD_MARGIN_S

    @property
    def agent_sandbox_s(self) -> float:
        """Return how long an agent may need its sandbox: prepare the repository, run the agent, take the diff."""
        return min(self.guard_s, self.harness.time_budget_s + self.rollout.workspace_timeout_s + GUARD_MARGIN_S)
