"""Errors of rl_agent, as one tree.

    RlAgentError
    ├── ConfigError         invalid configuration; never retried; listed before anything starts
    │   └── ImageError          an image does not exist or is invalid; for a task in a run: SetupError
    ├── SetupError          a task's image, workspace or pre_commands failed; not retried; aborts the rollout, no reward
    ├── HarnessError        the agent CLI is missing, damaged or cannot be started; not retried
    ├── GraderError         the grader itself failed (not the tests); retried, then `infra_error`
    ├── LawError            a law of the design is broken; ends the run
    └── InfraError          machines, networks or processes failed; retried with back-off, then `infra_error`
        ├── SandboxError
        ├── EngineError
        └── WeightPushError     ends the run: training never continues with stale weights

Messages have the form `<where>: <what is wrong>. <How to fix it>.`
"""

from __future__ import annotations


class RlAgentError(Exception):
    """Base of all errors that rl_agent raises deliberately."""


class ConfigError(RlAgentError):
    """The configuration is invalid: unknown key, contradiction, unreadable file."""


class ImageError(ConfigError):
    """An image does not exist or is invalid. This is the only boot error that may be the task's fault."""


class SetupError(RlAgentError):
    """A task could not be set up in its sandbox. This is a fault of the task, not of the policy."""


class HarnessError(RlAgentError):
    """The agent CLI is missing, damaged, or cannot be started."""


class GraderError(RlAgentError):
    """Grading itself failed. This says nothing about the agent's work."""


class LawError(RlAgentError):
    """A law of the design is broken (a token counted twice, a missing log-probability). Its data never trains."""


class InfraError(RlAgentError):
    """Machines, networks or processes failed. This says nothing about the agent's work."""


class SandboxError(InfraError):
    """A sandbox could not be booted or was lost."""


class EngineError(InfraError):
    """The inference engine failed or returned an invalid response."""


class WeightPushError(InfraError):
    """New weights did not arrive, or arrived incorrectly."""
