"""Judges each task by the type of its specification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from rl_agent.config.grader import GraderConfig
from rl_agent.graders.eval_cmd import EvalCmdJudge
from rl_agent.graders.f2p import F2pJudge
from rl_agent.graders.judge import PatchGrader
from rl_agent.graders.swebench import SweBenchJudge
from rl_agent.graders.swepro import SweProJudge
from rl_agent.tasks.task import EvalCmdSpec, F2pSpec, SweBenchSpec, SweProSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.graders.sandboxed import Judge


@dataclass(kw_only=True)
class AutoConfig(GraderConfig):
    """Judges each task by the type of its specification."""

    @override
    def build(self) -> Auto:
        return Auto(self)


class Auto(PatchGrader):
    """Judges every task."""

    judges: ClassVar[Mapping[type, Judge]] = {
        EvalCmdSpec: EvalCmdJudge(),
        F2pSpec: F2pJudge(),
        SweProSpec: SweProJudge(),
        SweBenchSpec: SweBenchJudge(),
    }
