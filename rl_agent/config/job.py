"""Base config of a job, the task of a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rl_agent.config.plug_in import TargetConfig

if TYPE_CHECKING:
    from rl_agent.config.schema import Config
    from rl_agent.run_folder import RunFolder


@dataclass(kw_only=True)
class JobConfig(TargetConfig, base=True):
    """Options that every job has, and the method that runs the job."""

    trains: ClassVar[bool] = False
    """True if the job updates the policy, or plans a job that does. The parts of the algorithm must then fit
    together."""
    samples_to_train: ClassVar[bool] = False
    """True if the job trains on the log-probabilities of its own samples."""
    steps: int = 0
    """Total number of training steps, including those before a resume; 0 if the job has none."""

    def run(self, config: Config, folder: RunFolder) -> None:
        """Run the job. Raises RlAgentError with one line per error."""
        raise NotImplementedError
