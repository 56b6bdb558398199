"""The errors of rl_agent, one tree.

    RlAgentError
    ├── ConfigError         the user's configuration; never retried; listed before anything starts
    │   └── ImageError          an image that does not exist or is none; of a task in a run: SetupError
    ├── SetupError          a task's image, workspace or pre_commands; not retried; the rollout is aborted, never reward 0
    ├── HarnessError        the agent CLI is missing, damaged or cannot be started; not retried
    ├── GraderError         the grader itself failed (not the tests); retried, then `infra_error`
    ├── LawError            one of the design's laws is broken; ends the run
    └── InfraError          machines, networks, processes; retried with back-off, then `infra_error`
        ├── SandboxError
        ├── EngineError
        └── WeightPushError     ends the run: training never goes on against stale weights

A message names the thing, the place and the remedy.
"""

from __future__ import annotations


class RlAgentError(Exception):
    """Base of every error that rl_agent raises on purpose."""


class ConfigError(RlAgentError):
    """The configuration is wrong: unknown key, contradiction, unreadable file."""


class ImageError(ConfigError):
    """An image does not exist, or is none: the only thing at a boot that may be a task's own fault."""


class SetupError(RlAgentError):
    """A task could not be set up in its sandbox: a fault of the task, not of the policy."""


class HarnessError(RlAgentError):
    """The agent CLI is missing, damaged, or cannot be started."""


class GraderError(RlAgentError):
    """Grading itself failed; says nothing about the agent's work."""


class LawError(RlAgentError):
    """A law of the design is broken (a token counted twice, a log-probability missing): never trained on."""


class InfraError(RlAgentError):
    """Machines, networks or processes failed; says nothing about the agent's work."""


class SandboxError(InfraError):
    """A sandbox could not be booted, or was lost."""


class EngineError(InfraError):
    """The inference engine failed or gave an unusable answer."""


class WeightPushError(InfraError):
    """New weights did not arrive, or arrived wrong."""
