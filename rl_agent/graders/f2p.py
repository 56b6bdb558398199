"""Judges by named tests of pytest, run by a runner of ours that reports each outcome on a channel of its own."""

from __future__ import annotations

import ast
import asyncio
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import override

from rl_agent.config.grader import GraderConfig
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.judge import CACHES_OFF, TOOLS, Assets, PatchGrader
from rl_agent.graders.names import Named
from rl_agent.graders.signals import Signal
from rl_agent.tasks.task import F2pSpec
from rl_agent.workspace.diff import touched_paths
from rl_agent.workspace.workspace import printed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.graders.judge import Judge, Trial

RUNNER: Final = "run_pytest.py"
NAME_SHOWN: Final = 200
LENIENT_SCRIPT: Final = "/workspace/__cagent_f2p__.py"
"""Where common recipes put the script."""


class F2pJudge:
    """See `Judge`."""

    def test_files(self, spec: F2pSpec) -> Sequence[str]:
        """See `Judge.test_files`."""
        named = [name.partition("::")[0] for name in (*spec.fail_to_pass, *spec.pass_to_pass)]
        brought = [path.decode(errors="replace") for path in touched_paths(spec.test_patch.encode())]
        script = [spec.script_path] if spec.script else []
        return tuple(dict.fromkeys((*named, *brought, *script, *spec.test_files)))

    def assets(self, spec: F2pSpec, options: GraderConfig) -> Assets:
        """See `Judge.assets`."""
        if not options.strict:
            return Assets()
        return Assets(
            hidden={spec.script_path: spec.script} if spec.script else {},
            test_patch=spec.test_patch.encode(),
            tools={RUNNER: Path(__file__).with_name(RUNNER).read_bytes()},
        )

    async def run(self, trial: Trial, spec: F2pSpec) -> Verdict:
        """See `Judge.run`."""
        if not trial.options.strict:
            return await _lenient(trial, spec)
        named, request = _request(spec, trial)
        before = await _fingerprints(trial, spec)
        result = await trial.sandbox.exec(
            f"{spec.python} {TOOLS}/{RUNNER}",
            cwd=trial.task.workdir,
            env={
                **CACHES_OFF,
                "PYTHONSAFEPATH": "1",
                **({} if trial.options.plugin_autoload else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}),
            },
            stdin=json.dumps(request).encode() + b"\n",
            timeout=trial.options.timeout_s,
        )
        log = printed(result, trial.options.max_log_bytes)
        total = len(request["names"]) or 1
        if result.timed_out:
            return Verdict(status=VerdictStatus.TIMEOUT, reward=0.0, tests_failed=total, log=log)
        reports = await asyncio.to_thread(_reports, result.stdout, request["nonce"])
        changed = {} if await _fingerprints(trial, spec) == before else {Signal.TEST_FILE_CHANGED: sorted(before)}
        if len(reports) != 1 or not _is_whole(reports[0], total):
            what = {"no_report": f"the test run ended ({result.exit_code}) without a report"}
            if reports:
                changed[Signal.FORGED_REPORT] = [f"{len(reports)} reports"]
            status = VerdictStatus.TAMPERED if changed else VerdictStatus.FAILED
            return Verdict(
                status=status, reward=0.0, tests_failed=total, log=log, metadata={**what, "signals": changed}
            )
        return _verdict(reports[0], named, changed, log=log, options=trial.options)


def _request(spec: F2pSpec, trial: Trial) -> tuple[F2pSpec, dict[str, Any]]:
    """The tests that are wanted, and what the runner is told."""
    whole: list[str] = []
    named = spec
    if not spec.fail_to_pass and spec.script:
        found = defined_tests(spec.script, spec.script_path)
        named = F2pSpec(fail_to_pass=found, pass_to_pass=spec.pass_to_pass if found else ())
        whole = [spec.script_path] if found else []
    names = [*named.fail_to_pass, *named.pass_to_pass]
    request = {
        "nonce": secrets.token_hex(16),
        "workdir": trial.task.workdir,
        "names": names,
        "whole_files": whole,
        "expand": bool(whole),
        "files": list(dict.fromkeys(name.partition("::")[0] for name in names)),
        "touched": list(trial.touched),
        "arguments": [],
        "script": "" if names else spec.script_path,
    }
    return named, request


def _verdict(
    report: dict[str, Any], named: F2pSpec, changed: dict[Signal, list[str]], *, log: str, options: GraderConfig
) -> Verdict:
    results: list[str] = report["results"]
    if report["changed"]:
        changed[Signal.TEST_MACHINERY_CHANGED] = [name[:NAME_SHOWN] for name in report["changed"][:10]]
    if changed:
        metadata = {"signals": changed}
        return Verdict(status=VerdictStatus.TAMPERED, reward=0.0, tests_failed=len(results), log=log, metadata=metadata)
    others: dict[str, int] = report["others"]
    more: dict[str, Any] = {"exit_code": report["code"]} if report["code"] else {}
    tests = Named(fail_to_pass=named.fail_to_pass or ["the script"], pass_to_pass=named.pass_to_pass, outcomes=results)
    verdict = tests.verdict(log=log, skipped_pass_to_pass=options.skipped_pass_to_pass, more=more)
    failed_others = others.get("failed", 0) + others.get("error", 0)
    if verdict.status is VerdictStatus.SOLVED and (report["code"] != 0 or failed_others):
        # Named tests passed, yet the run did not: a file could not be collected, or pytest itself broke.
        return Verdict(status=VerdictStatus.FAILED, reward=0.0, tests_failed=1, log=log, metadata=more)
    return verdict


def defined_tests(script: str, path: str) -> tuple[str, ...]:
    """Node ids of the tests that a file defines, parameters left out; none for a plain script or one that does not parse."""
    try:
        tree = ast.parse(script)
    except SyntaxError:
        return ()
    found = []
    for node in tree.body:
        if _is_test(node):
            found.append(f"{path}::{node.name}")  # type: ignore[attr-defined]
        elif isinstance(node, ast.ClassDef) and (node.name.startswith("Test") or _is_test_case(node)):
            found += [f"{path}::{node.name}::{inner.name}" for inner in node.body if _is_test(inner)]  # type: ignore[attr-defined]
    return tuple(found)


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def _is_test_case(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith("TestCase") for base in node.bases)


def _reports(channel: bytes, nonce: str) -> list[dict[str, Any]]:
    """Every report on the channel that knows the nonce."""
    found = []
    for line in channel.splitlines():
        try:
            report = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(report, dict) and report.get("nonce") == nonce:
            found.append(report)
    return found


def _is_whole(report: Mapping[str, Any], total: int) -> bool:
    """Whether the runner may have written it: who finds the nonce may send anything."""
    results, changed, others = report.get("results"), report.get("changed"), report.get("others")
    return (
        type(report.get("code")) is int
        and isinstance(results, list)
        and len(results) == total
        and isinstance(changed, list)
        and isinstance(others, dict)
        and all(isinstance(text, str) for text in (*results, *changed))
        and all(type(count) is int for count in others.values())
    )


async def _fingerprints(trial: Trial, spec: F2pSpec) -> dict[str, str]:
    """Path -> hash of the files with the named tests, as root sees them."""
    files = F2pJudge().test_files(spec)
    plain = "\0".join(path for path in files if not any(sign in path for sign in "*?["))
    result = await trial.sandbox.exec(
        "xargs -0 -r sha256sum -- 2>/dev/null || :",
        user="root",
        cwd=trial.task.workdir,
        stdin=plain.encode(),
        timeout=trial.options.setup_timeout_s,
    )
    rows = (line.split(None, 1) for line in result.stdout.decode(errors="replace").splitlines())
    return {row[1]: row[0] for row in rows if len(row) == 2}


async def _lenient(trial: Trial, spec: F2pSpec) -> Verdict:
    """As common recipes do it: the script is run as a program of the agent's, and exit code 0 is solved."""
    await trial.sandbox.write_file(LENIENT_SCRIPT, spec.script, user="root", mode=0o644)
    result = await trial.sandbox.exec(
        f"{spec.python} {LENIENT_SCRIPT}", cwd=trial.task.workdir, timeout=trial.options.timeout_s
    )
    log = printed(result, trial.options.max_log_bytes)
    if result.timed_out:
        return Verdict(status=VerdictStatus.TIMEOUT, reward=0.0, tests_failed=1, log=log)
    solved = result.exit_code == 0
    return Verdict(
        status=VerdictStatus.SOLVED if solved else VerdictStatus.FAILED,
        reward=float(solved),
        tests_passed=int(solved),
        tests_failed=int(not solved),
        log=log,
    )


@dataclass(kw_only=True)
class F2pConfig(GraderConfig):
    """Named tests of pytest, each of which must be seen and pass."""

    @override
    def build(self) -> F2p:
        return F2p(self)


class F2p(PatchGrader):
    """Judges tasks that have an `F2pSpec`."""

    judges: ClassVar[Mapping[type, Judge]] = {F2pSpec: F2pJudge()}
