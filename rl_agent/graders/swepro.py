"""Judges as SWE-bench Pro does: a run script in the sandbox, then the row's parser over what it printed.

The log is no structured channel: code under test can print what it likes. So the parser runs on this machine, the tests
come back after the patch, and where the script starts pytest, pytest itself must agree with the log.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import override

from rl_agent.config.grader import GraderConfig
from rl_agent.errors import SetupError
from rl_agent.graders import confirm
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.judge import CACHES_OFF, TOOLS, Assets, PatchGrader
from rl_agent.graders.names import ABSENT, NAMES_SHOWN, Named, outcomes_of, plain
from rl_agent.graders.parse import OUTPUT_BYTES, parse_log, require_pinned
from rl_agent.graders.signals import Signal
from rl_agent.sandboxes.base import UnreadableError
from rl_agent.tasks.task import SweProSpec
from rl_agent.workspace.workspace import PRIVATE, printed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.graders.judge import Judge, Trial
    from rl_agent.sandboxes.base import ExecResult

OTHER_TESTS: Final = (
    "*_test.go",
    "*.spec.[jt]s",
    "*.spec.[jt]sx",
    "*.test.[jt]s",
    "*.test.[jt]sx",
    "*/__snapshots__/*",
)
"""Tests beside the named ones can end a run before these start, or print in their name."""
LENIENT: Final = "/workspace/swepro_eval"
_FILE: Final = re.compile(r"[\w./\-\[\]@]+\.\w+")


class SweProJudge:
    """See `Judge`."""

    def test_files(self, spec: SweProSpec) -> Sequence[str]:
        """See `Judge.test_files`."""
        named = [name.partition(" | ")[0].partition("::")[0] for name in (*spec.fail_to_pass, *spec.pass_to_pass)]
        files = [path for path in (*spec.selected_test_files, *named) if _FILE.fullmatch(path) and "/" in path]
        restored = [word for word in shlex.split(_last_line(spec)) if "/" in word] if spec.before_repo_set_cmd else []
        roots = [path for path in (*spec.selected_test_files, *named) if _FILE.fullmatch(path) and "/" not in path]
        return tuple(dict.fromkeys((*files, *roots, *restored, *OTHER_TESTS)))

    def assets(self, spec: SweProSpec, options: GraderConfig) -> Assets:
        """See `Judge.assets`."""
        if not options.strict:
            return Assets()
        tools: dict[str, str | bytes] = {"run_script.sh": spec.run_script}
        if confirm.starts_pytest(spec.run_script):
            tools |= confirm.plugin()
        return Assets(tools=tools)

    async def run(self, trial: Trial, spec: SweProSpec) -> Verdict:
        """See `Judge.run`."""
        require_pinned(spec.parser, spec.parser_sha256, trial.task.task_id)
        if not trial.options.strict:
            return await _lenient(trial, spec)
        await _bring_tests(trial, spec)
        result, stdout, stderr = await _run_script(trial, spec)
        log = printed(result, trial.options.max_log_bytes)
        names = (*spec.fail_to_pass, *spec.pass_to_pass)
        if result.timed_out:
            return Verdict(status=VerdictStatus.TIMEOUT, reward=0.0, tests_failed=len(names), log=log)
        parsed = await parse_log(spec.parser, stdout, stderr, timeout_s=trial.options.parser_timeout_s)
        seen = {plain(name): status for name, status in parsed.items()}
        outcomes = outcomes_of(names, seen)
        forged = (
            confirm.forged(names, outcomes, await confirm.told(trial.sandbox))
            if confirm.starts_pytest(spec.run_script)
            else []
        )
        if forged:
            metadata: dict[str, Any] = {"signals": {Signal.FORGED_REPORT: forged}}
            return Verdict(
                status=VerdictStatus.TAMPERED, reward=0.0, tests_failed=len(forged), log=log, metadata=metadata
            )
        return judge_log(spec, parsed, log=log, skipped_pass_to_pass=trial.options.skipped_pass_to_pass)


def judge_log(
    spec: SweProSpec, parsed: Mapping[str, str], *, log: str = "", skipped_pass_to_pass: bool = False
) -> Verdict:
    """The verdict of what a parser found, without a sandbox."""
    seen = {plain(name): status for name, status in parsed.items()}
    outcomes = outcomes_of((*spec.fail_to_pass, *spec.pass_to_pass), seen)
    named = Named(fail_to_pass=spec.fail_to_pass, pass_to_pass=spec.pass_to_pass, outcomes=outcomes)
    verdict = named.verdict(log=log, skipped_pass_to_pass=skipped_pass_to_pass)
    wanted = {plain(name): status for name, status in spec.expected.items()}
    if not wanted or seen == wanted or verdict.status is not VerdictStatus.SOLVED:
        return verdict
    other = {name: seen.get(name, ABSENT) for name in {*seen, *wanted} if seen.get(name) != wanted.get(name)}
    metadata = {**verdict.metadata, "tests_unexpected": dict(sorted(other.items())[:NAMES_SHOWN])}
    return replace(verdict, status=VerdictStatus.FAILED, reward=0.0, tests_failed=len(other), metadata=metadata)


def _last_line(spec: SweProSpec) -> str:
    lines = [line for line in spec.before_repo_set_cmd.strip().splitlines() if line.strip()]
    return lines[-1] if lines else ""


async def _bring_tests(trial: Trial, spec: SweProSpec) -> None:
    """The last line of before_repo_set_cmd: tests come after the patch, so that they replace what it did to them."""
    command = _last_line(spec)
    if not command:
        return
    result = await trial.sandbox.exec(command, cwd=trial.task.workdir, timeout=trial.options.setup_timeout_s)
    if result.exit_code != 0:
        shown = printed(result, 2000)
        raise SetupError(f"task {trial.task.task_id}: `{command[:200]}` ended with {result.exit_code}: {shown}")


async def _run_script(trial: Trial, spec: SweProSpec) -> tuple[ExecResult, bytes, bytes]:
    """The script's result, and its two streams as they stand in files of root's."""
    exports = confirm.EXPORTS if confirm.starts_pytest(spec.run_script) else ""
    files = shlex.quote(",".join(spec.selected_test_files))
    result = await trial.sandbox.exec(
        f"{exports}bash {TOOLS}/run_script.sh {files}",
        cwd=trial.task.workdir,
        env={**CACHES_OFF, **spec.environment},
        timeout=trial.options.timeout_s,
    )
    return result, result.stdout, result.stderr


async def _lenient(trial: Trial, spec: SweProSpec) -> Verdict:
    """As common recipes do it: script and parser belong to the agent and run in its sandbox."""
    script = f"mkdir -p {LENIENT} && cp {PRIVATE}/lenient/* {LENIENT}/ && chown -R agent: {LENIENT}"
    for name, text in {"run_script.sh": spec.run_script, "parser.py": spec.parser}.items():
        await trial.sandbox.write_file(f"{PRIVATE}/lenient/{name}", text, user="root")
    await trial.sandbox.exec(script, user="root", timeout=trial.options.setup_timeout_s, check=True)
    files = shlex.quote(",".join(spec.selected_test_files))
    command = (
        f"bash {LENIENT}/run_script.sh {files} >{LENIENT}/stdout.log 2>{LENIENT}/stderr.log || true; "
        f"python3 {LENIENT}/parser.py {LENIENT}/stdout.log {LENIENT}/stderr.log {LENIENT}/result.json"
    )
    result = await trial.sandbox.exec(command, cwd=trial.task.workdir, timeout=trial.options.timeout_s)
    log = printed(result, trial.options.max_log_bytes)
    if result.timed_out:
        return Verdict(status=VerdictStatus.TIMEOUT, reward=0.0, tests_failed=1, log=log)
    try:
        written = await trial.sandbox.read_file(f"{LENIENT}/result.json", user="root", max_bytes=OUTPUT_BYTES)
        rows = json.loads(written)["tests"]
        passed = {row["name"] for row in rows if row["status"] == "PASSED"}
    except (FileNotFoundError, UnreadableError, ValueError, KeyError, TypeError, RecursionError):
        passed = set()
    wanted = {*spec.fail_to_pass, *spec.pass_to_pass}
    solved = bool(wanted) and wanted <= passed
    return Verdict(
        status=VerdictStatus.SOLVED if solved else VerdictStatus.FAILED,
        reward=float(solved),
        tests_passed=len(wanted & passed),
        tests_failed=len(wanted - passed),
        log=log,
    )


@dataclass(kw_only=True)
class SweProConfig(GraderConfig):
    """SWE-bench Pro: a run script in the sandbox, a parser over its log on this machine."""

    @override
    def build(self) -> SwePro:
        return SwePro(self)


class SwePro(PatchGrader):
    """Judges tasks that have a `SweProSpec`."""

    judges: ClassVar[Mapping[type, Judge]] = {SweProSpec: SweProJudge()}
