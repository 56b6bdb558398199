"""Judges as SWE-bench Pro does: a run script in the sandbox, then the row's parser over its log, on this machine.

Code under test can print anything into the log. The mixed runs show whether the log tells the truth.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from rl_agent.config.grader import GraderConfig
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.judge import PatchGrader
from rl_agent.graders.names import ABSENT, NAMES_SHOWN, Names, plain, worst_by_name
from rl_agent.graders.outcomes import KEEP_GOING
from rl_agent.graders.parse import OUTPUT_BYTES, ParserError, parse_log, require_pinned
from rl_agent.graders.sandboxed import CACHES_OFF, TOOLS, TestRun, Tests
from rl_agent.sandboxes.base import UnreadableError
from rl_agent.tasks.task import SweProSpec
from rl_agent.workspace.workspace import PRIVATE, printed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.graders.sandboxed import Judge, Trial
    from rl_agent.workspace.workspace import Files

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

    reads_docstrings = True

    def names(self, spec: SweProSpec) -> Names:
        """See `Judge.names`."""
        return Names(fail_to_pass=spec.fail_to_pass, pass_to_pass=spec.pass_to_pass)

    def test_files(self, spec: SweProSpec) -> Sequence[str]:
        """See `Judge.test_files`."""
        return (*self.sources(spec), *OTHER_TESTS)

    def sources(self, spec: SweProSpec) -> Sequence[str]:
        """See `Judge.sources`."""
        named = [path.partition(" | ")[0] for path in self.names(spec).files]
        files = [path for path in (*spec.selected_test_files, *named) if _FILE.fullmatch(path)]
        restored = [word for word in shlex.split(_last_line(spec)) if "/" in word] if spec.before_repo_set_cmd else []
        return tuple(dict.fromkeys((*files, *restored)))

    def tests(self, spec: SweProSpec) -> Tests:
        """See `Judge.tests`."""
        return Tests(command=_last_line(spec))

    def controls(self, spec: SweProSpec) -> Mapping[str, str]:
        """See `Judge.controls`."""
        return {}

    def tools(self, spec: SweProSpec, options: GraderConfig) -> Files:
        """See `Judge.tools`."""
        return {"run_script.sh": spec.run_script} if options.strict else {}

    async def run(self, trial: Trial, spec: SweProSpec) -> TestRun:
        """See `Judge.run`."""
        require_pinned(spec.parser, spec.parser_sha256, trial.task.task_id)
        if not trial.options.strict:
            return await _lenient(trial, spec)
        files = shlex.quote(",".join(spec.selected_test_files))
        result = await trial.sandbox.exec(
            f"{KEEP_GOING if trial.is_mixed else ''}bash {TOOLS}/run_script.sh {files}",
            cwd=trial.task.workdir,
            env={**CACHES_OFF, **spec.environment},
            timeout=trial.options.timeout_s,
        )
        log, exit_code = printed(result, trial.options.max_log_bytes), result.exit_code
        if result.timed_out:
            return TestRun(timed_out=True, exit_code=exit_code, log=log)
        try:
            rows = await parse_log(spec.parser, result.stdout, result.stderr, timeout_s=trial.options.parser_timeout_s)
        except ParserError as error:
            return TestRun(exit_code=exit_code, log=log, problem=str(error))
        return TestRun(outcomes=worst_by_name(rows), exit_code=exit_code, log=log)

    def verdict(self, spec: SweProSpec, run: TestRun, options: GraderConfig) -> Verdict:
        """See `Judge.verdict`. A row with `expected` must see exactly these tests, each with its outcome."""
        seen = run.outcomes
        verdict = self.names(spec).verdict(seen, log=run.log, skipped_pass_to_pass=options.skipped_pass_to_pass)
        wanted = {plain(name): status for name, status in spec.expected.items()}
        if not wanted or seen == wanted or verdict.status is not VerdictStatus.SOLVED:
            return verdict
        other = {name: seen.get(name, ABSENT) for name in {*seen, *wanted} if seen.get(name) != wanted.get(name)}
        metadata = {**verdict.metadata, "tests_unexpected": dict(sorted(other.items())[:NAMES_SHOWN])}
        return replace(verdict, status=VerdictStatus.FAILED, reward=0.0, tests_failed=len(other), metadata=metadata)


def _last_line(spec: SweProSpec) -> str:
    lines = [line for line in spec.before_repo_set_cmd.strip().splitlines() if line.strip()]
    return lines[-1] if lines else ""


async def _lenient(trial: Trial, spec: SweProSpec) -> TestRun:
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
        return TestRun(timed_out=True, exit_code=result.exit_code, log=log)
    try:
        written = await trial.sandbox.read_file(f"{LENIENT}/result.json", user="root", max_bytes=OUTPUT_BYTES)
        rows = json.loads(written)["tests"]
        outcomes = worst_by_name((row["name"], row["status"].lower()) for row in rows)
    except (FileNotFoundError, UnreadableError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        outcomes = {}
    return TestRun(outcomes=outcomes, exit_code=result.exit_code, log=log)


@dataclass(kw_only=True)
class SweProConfig(GraderConfig):
    """SWE-bench Pro: a run script in the sandbox, a parser over its log on this machine."""

    @override
    def build(self) -> SwePro:
        return SwePro(self)


class SwePro(PatchGrader):
    """Judges tasks that have a `SweProSpec`."""

    judges: ClassVar[Mapping[type, Judge]] = {SweProSpec: SweProJudge()}
