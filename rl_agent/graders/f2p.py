"""Judges by named tests of pytest, or by a script that must run to its end."""

from __future__ import annotations

import ast
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from rl_agent.config.grader import GraderConfig
from rl_agent.graders.judge import PatchGrader, command_run
from rl_agent.graders.names import Names
from rl_agent.graders.outcomes import plugin, read_outcomes, with_plugin
from rl_agent.graders.sandboxed import CACHES_OFF, TestRun, Tests
from rl_agent.tasks.task import F2pSpec
from rl_agent.twins.make import COMMAND
from rl_agent.workspace.diff import touched_paths
from rl_agent.workspace.workspace import printed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.graders.base import Verdict
    from rl_agent.graders.sandboxed import Judge, Trial
    from rl_agent.workspace.workspace import Files

LENIENT_SCRIPT: Final = "/workspace/__cagent_f2p__.py"
"""Where common recipes put the script."""
OPTIONS: Final = "--rootdir=. --continue-on-collection-errors -rA"
"""Options that make node ids relative to the work tree, and let a broken file cost its own tests only."""


class F2pJudge:
    """See `Judge`."""

    reads_docstrings = False

    def names(self, spec: F2pSpec) -> Names:
        """See `Judge.names`. A script without named tests must pass all tests that it defines."""
        if spec.fail_to_pass or not spec.script:
            return Names(fail_to_pass=spec.fail_to_pass, pass_to_pass=spec.pass_to_pass)
        return Names(fail_to_pass=defined_tests(spec.script, spec.script_path) or (COMMAND,))

    def test_files(self, spec: F2pSpec) -> Sequence[str]:
        """See `Judge.test_files`."""
        brought = [path.decode(errors="replace") for path in touched_paths(spec.test_patch.encode())]
        script = [spec.script_path] if spec.script else []
        return tuple(dict.fromkeys((*self.sources(spec), *brought, *script, *spec.test_files)))

    def sources(self, spec: F2pSpec) -> Sequence[str]:
        """See `Judge.sources`."""
        return [path for path in self.names(spec).files if path != COMMAND]

    def tests(self, spec: F2pSpec) -> Tests:
        """See `Judge.tests`."""
        return Tests(files={spec.script_path: spec.script} if spec.script else {}, patch=spec.test_patch.encode())

    def controls(self, spec: F2pSpec) -> Mapping[str, str]:
        """See `Judge.controls`."""
        return {}

    def tools(self, spec: F2pSpec, options: GraderConfig) -> Files:
        """See `Judge.tools`."""
        return plugin()

    async def run(self, trial: Trial, spec: F2pSpec) -> TestRun:
        """See `Judge.run`."""
        if not trial.options.strict:
            await trial.sandbox.write_file(LENIENT_SCRIPT, spec.script, user="root", mode=0o644)
            return await command_run(trial, f"{spec.python} {LENIENT_SCRIPT}")
        names = self.names(spec)
        if names.all == (COMMAND,):
            path = 'export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"\n'  # as pytest finds modules
            return await command_run(trial, f"{path}{spec.python} {shlex.quote(spec.script_path)}")
        result = await trial.sandbox.exec(
            with_plugin(_command(spec, _files(names)), trial),
            cwd=trial.task.workdir,
            env=CACHES_OFF if trial.options.plugin_autoload else {**CACHES_OFF, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            timeout=trial.options.timeout_s,
        )
        return TestRun(
            outcomes={} if result.timed_out else await read_outcomes(trial.sandbox),
            exit_code=result.exit_code,
            timed_out=result.timed_out,
            log=printed(result, trial.options.max_log_bytes),
        )

    def verdict(self, spec: F2pSpec, run: TestRun, options: GraderConfig) -> Verdict:
        """See `Judge.verdict`."""
        names = self.names(spec) if options.strict else Names(fail_to_pass=(COMMAND,))
        return names.verdict(run.outcomes, log=run.log, skipped_pass_to_pass=options.skipped_pass_to_pass)


def _files(names: Names) -> list[str]:
    """Return the files of the named tests. Whole files are run: node ids would give away expected values."""
    return list(dict.fromkeys(name.partition("::")[0] for name in names.all if name != COMMAND))


def _command(spec: F2pSpec, files: Sequence[str]) -> str:
    """Return the command of the row, with its options, over the files of the named tests that exist."""
    words = spec.test_command.split(maxsplit=1) or ["pytest"]
    start = f"{spec.python} -m pytest" if words[0] in {"pytest", "py.test"} else words[0]
    options = words[1] if len(words) > 1 else ""
    listed = " ".join(shlex.quote(file) for file in files)
    return f'set --; for file in {listed}; do [ ! -e "$file" ] || set -- "$@" "$file"; done\n{start} {options} {OPTIONS} "$@"'


def defined_tests(script: str, path: str) -> tuple[str, ...]:
    """Return the node ids of the tests that a file defines, without parameters. None for a plain or invalid script."""
    try:
        tree = ast.parse(script.encode())  # bytes, which may begin with a byte order mark
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


@dataclass(kw_only=True)
class F2pConfig(GraderConfig):
    """Named tests of pytest, each of which must be seen and pass."""

    @override
    def build(self) -> F2p:
        return F2p(self)


class F2p(PatchGrader):
    """Judges tasks that have an `F2pSpec`."""

    judges: ClassVar[Mapping[type, Judge]] = {F2pSpec: F2pJudge()}
