"""Judges with the `swebench` package (4.1 or 5.x, optional): its evaluation script in the sandbox, its log parser on this machine.

What the parser found is judged as everywhere here: each named test seen and passed. The package's own verdict (which forgives
skipped tests, and takes what a log says for what happened) counts with `grader.strict=false` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import override

from rl_agent.config.grader import GraderConfig
from rl_agent.errors import SetupError
from rl_agent.graders import confirm
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.judge import CACHES_OFF, TOOLS, Assets, PatchGrader
from rl_agent.graders.names import Named, outcomes_of, plain
from rl_agent.graders.signals import Signal
from rl_agent.graders.swebench_log import REPORT, STATUSES, read_log
from rl_agent.graders.swebench_package import FAIL_ONLY, package_of, script_of, test_command
from rl_agent.tasks.task import SweBenchSpec
from rl_agent.workspace.diff import touched_paths
from rl_agent.workspace.workspace import printed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.graders.judge import Judge, Trial
    from rl_agent.graders.swebench_package import Package

SCRIPT: Final = "swebench_eval.sh"
LISTS: Final = ("FAIL_TO_PASS", "PASS_TO_PASS")
PIP: Final = {"PIP_RETRIES": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""The scripts install the project anew; without a network, waiting for an index only costs time."""


class SweBenchJudge:
    """See `Judge`."""

    def test_files(self, spec: SweBenchSpec) -> Sequence[str]:
        """See `Judge.test_files`."""
        patch = str(spec.instance.get("test_patch") or "")
        return tuple(path.decode(errors="replace") for path in touched_paths(patch.encode()))

    def assets(self, spec: SweBenchSpec, options: GraderConfig) -> Assets:
        """See `Judge.assets`. Raises ConfigError without the package, SetupError for a row that it does not know."""
        script = package_of(spec.instance).script
        if not options.strict:
            return Assets(tools={SCRIPT: script})
        return Assets(
            tools={
                SCRIPT: script_of(script),
                **(confirm.plugin() if confirm.starts_pytest(test_command(script)) else {}),
            }
        )

    async def run(self, trial: Trial, spec: SweBenchSpec) -> Verdict:
        """See `Judge.run`. The script installs the project and brings the tests; as the agent, where strict."""
        options, package = trial.options, package_of(spec.instance)
        confirmed = options.strict and confirm.starts_pytest(test_command(package.script))
        if options.strict and package.eval_type == FAIL_ONLY:
            raise SetupError(
                f"task {trial.task.task_id}: the log parser of {package.repo} records failures only, so that no test can be seen "
                "to pass. Remedy: leave the row out, or grader.strict=false"
            )
        result = await trial.sandbox.exec(
            (confirm.EXPORTS if confirmed else "") + f"bash {TOOLS}/{SCRIPT} 2>&1",
            user="agent" if options.strict else "root",
            cwd=trial.task.workdir,
            env={**CACHES_OFF, **PIP},
            timeout=options.timeout_s,
        )
        log = printed(result, options.max_log_bytes)
        if result.timed_out:
            return Verdict(status=VerdictStatus.TIMEOUT, reward=0.0, tests_failed=1, log=log)
        if not options.strict:
            found = await read_log(REPORT, spec.instance, result.stdout, timeout_s=options.parser_timeout_s)
            return package_verdict(found, log)
        statuses = await read_log(STATUSES, spec.instance, result.stdout, timeout_s=options.parser_timeout_s)
        said = await confirm.told(trial.sandbox) if confirmed else None
        return judge_statuses(package, statuses, said, log=log, skipped_pass_to_pass=options.skipped_pass_to_pass)


def judge_statuses(
    package: Package,
    statuses: Mapping[str, str],
    said: Mapping[str, str] | None,
    *,
    log: str = "",
    skipped_pass_to_pass: bool = False,
) -> Verdict:
    """The verdict of what a log parser found; `said`: what pytest itself told, None where it could not be asked."""
    seen = {plain(name): status for name, status in statuses.items()}
    names = (*package.fail_to_pass, *package.pass_to_pass)
    outcomes = outcomes_of(names, seen)
    made_up = confirm.forged(names, outcomes, said) if said is not None else []
    if made_up:
        metadata: dict[str, Any] = {"signals": {Signal.FORGED_REPORT: made_up}}
        return Verdict(status=VerdictStatus.TAMPERED, reward=0.0, tests_failed=len(made_up), log=log, metadata=metadata)
    named = Named(fail_to_pass=package.fail_to_pass, pass_to_pass=package.pass_to_pass, outcomes=outcomes)
    return named.verdict(log=log, skipped_pass_to_pass=skipped_pass_to_pass)


def package_verdict(report: Mapping[str, Any], log: str) -> Verdict:
    """The verdict of a report of the package's."""
    tests = report.get("tests_status") or {}
    passed = sum(len(tests.get(kind, {}).get("success", ())) for kind in LISTS)
    missed = {name: "failed" for kind in LISTS for name in tests.get(kind, {}).get("failure", ())}
    solved = bool(report.get("resolved"))
    return Verdict(
        status=VerdictStatus.SOLVED if solved else VerdictStatus.FAILED,
        reward=float(solved),
        tests_passed=passed,
        tests_failed=len(missed) or int(not solved),
        log=log,
        metadata={"tests_missed": dict(list(missed.items())[:20])} if missed else {},
    )


@dataclass(kw_only=True)
class SweBenchConfig(GraderConfig):
    """The `swebench` package (optional extra `swebench`)."""

    @override
    def build(self) -> SweBench:
        return SweBench(self)


class SweBench(PatchGrader):
    """Judges tasks that have a `SweBenchSpec`."""

    judges: ClassVar[Mapping[type, Judge]] = {SweBenchSpec: SweBenchJudge()}
