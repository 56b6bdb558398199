"""A minimal agent program as a harness: `shell_agent.py`, which talks OpenAI Chat Completions and has one shell tool."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from rl_agent.config.harness import HarnessConfig
from rl_agent.harnesses.base import ExitReason
from rl_agent.harnesses.run import check_prompt, prompt, result_of, run_cli
from rl_agent.sandboxes.base import Asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.harnesses.base import Budget, HarnessResult
    from rl_agent.sandboxes.base import Sandbox
    from rl_agent.tasks.task import Task

PROGRAM: Final = Path(__file__).with_name("shell_agent.py")
TARGET: Final = "/opt/own_plugins/shell_agent.py"


@dataclass(kw_only=True)
class ShellConfig(HarnessConfig):
    """A shell agent of 60 lines."""

    dialect: ClassVar[str] = "rl_agent.adapters.openai_chat.OpenAIChat"
    replies: int = 8
    """Most replies of the model in one run."""

    def build(self) -> Shell:
        """Return the harness."""
        return Shell(self)


class Shell:
    """See the module."""

    def __init__(self, config: ShellConfig) -> None:
        check_prompt(config.prompt)
        self._config = config

    def find_assets(self) -> Sequence[Asset]:
        """Return the agent program."""
        return [Asset(source=PROGRAM, target=TARGET)]

    async def install(self, sandbox: Sandbox) -> None:
        """Do nothing: the program needs only python3."""

    async def run(self, sandbox: Sandbox, *, task: Task, base_url: str, token: str, budget: Budget) -> HarnessResult:
        """Run the agent. See `rl_agent.harnesses.base.Harness`."""
        config = self._config
        words = ["python3", TARGET, prompt(config.prompt, task), config.system_prompt or "", str(config.replies)]
        result, _ = await run_cli(
            sandbox,
            f"exec {shlex.join(words)} </dev/null",
            name="shell agent",
            task=task,
            env={"BASE_URL": base_url, "TOKEN": token, **config.extra_env},
            time_s=min(config.time_budget_s, budget.time_s),
        )
        if result.timed_out:
            return result_of(result, ExitReason.TIME_BUDGET)
        return result_of(result, ExitReason.FINISHED if result.exit_code == 0 else ExitReason.CLI_ERROR)
