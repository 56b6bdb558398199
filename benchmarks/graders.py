"""Twins and mixed runs on real Python projects: which tests have a twin, false alarms, and seconds per grading.

Each project is fetched from the package registry in two releases. The repository holds the tests of the first release and no
source. The gold patch adds the source of the first release, and stands for the solution that validates the twins. The
submission adds the source of the second release, and stands for honest work that differs from it.

    python -m benchmarks.graders [--projects NAME ...] [--gradings 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from rl_agent.graders.auto import AutoConfig
from rl_agent.graders.control import TwinStore
from rl_agent.graders.f2p import F2pJudge
from rl_agent.graders.sandboxed import run_tests
from rl_agent.sandboxes.local.provider import LocalSandboxConfig
from rl_agent.tasks.task import F2pSpec, Task
from rl_agent.twins.edit import STRONG
from tests.patches import patch_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.sandboxes.local.provider import LocalProvider

WORKDIR = "/workspace/repo"
TOOLS = ("pytest==8.4.2", "iniconfig==2.1.0", "pluggy==1.6.0", "packaging==25.0", "pygments==2.19.2")
MOST_BYTES = 1 << 20
"""Larger files of a release are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Two releases of a project."""

    name: str
    first: str
    second: str
    tests: str
    """Path prefix of its tests."""
    source: str
    """Path prefix of its source."""
    needs: tuple[str, ...] = ()
    """Pinned packages that its tests import."""
    left_out: tuple[str, ...] = ()
    """Test files that are not run: they take minutes, or need what a sandbox does not have."""


HYPOTHESIS = ("hypothesis==6.140.2", "attrs==25.3.0", "sortedcontainers==2.4.0")
PROJECTS = (
    Project(
        name="more-itertools",
        first="10.5.0",
        second="10.7.0",
        tests="tests/",
        source="more_itertools/",
        left_out=("tests/test_more.py",),
    ),
    Project(name="toolz", first="0.12.1", second="1.0.0", tests="toolz/tests/", source="toolz/"),
    Project(name="click", first="8.1.7", second="8.1.8", tests="tests/", source="src/click/"),
    Project(name="h11", first="0.14.0", second="0.16.0", tests="h11/tests/", source="h11/"),
    Project(
        name="itsdangerous",
        first="2.1.2",
        second="2.2.0",
        tests="tests/",
        source="src/itsdangerous/",
        needs=("freezegun==1.5.5", "python-dateutil==2.9.0.post0", "six==1.17.0"),
    ),
    Project(
        name="jinja2", first="3.1.4", second="3.1.6", tests="tests/", source="src/jinja2/", needs=("markupsafe==3.0.2",)
    ),
    Project(
        name="tomlkit", first="0.13.0", second="0.13.3", tests="tests/", source="tomlkit/", needs=("pyyaml==6.0.2",)
    ),
    Project(name="cachetools", first="5.4.0", second="5.5.2", tests="tests/", source="src/cachetools/"),
    Project(
        name="blinker",
        first="1.7.0",
        second="1.8.2",
        tests="tests/",
        source="src/blinker/",
        needs=("pytest-asyncio==0.26.0",),
    ),
    Project(
        name="pluggy",
        first="1.4.0",
        second="1.5.0",
        tests="testing/",
        source="src/pluggy/",
        left_out=("testing/benchmark.py",),
    ),
    Project(
        name="idna", first="3.7", second="3.10", tests="tests/", source="idna/", left_out=("tests/test_idna_uts46.py",)
    ),
    Project(name="sqlparse", first="0.5.1", second="0.5.3", tests="tests/", source="sqlparse/"),
    Project(name="boltons", first="24.1.0", second="25.0.0", tests="tests/", source="boltons/"),
    Project(name="mistune", first="3.0.2", second="3.1.3", tests="tests/", source="src/mistune/"),
    Project(
        name="natsort",
        first="8.3.1",
        second="8.4.0",
        tests="tests/",
        source="natsort/",
        needs=(*HYPOTHESIS, "pytest-mock==3.15.1"),
    ),
)


@dataclass(slots=True, kw_only=True)
class Result:
    """Figures of one project."""

    name: str
    functions: int = 0
    """Test functions whose tests pass with both releases."""
    tests: int = 0
    sound: int = 0
    """Functions with a twin that fails with the first release."""
    strong: int = 0
    """Functions with a twin that changes an expected value."""
    excused: int = 0
    """Tests that need not pass in mixed runs, since they depend on their neighbours or on the text of their file."""
    findings: list[str] = field(default_factory=list)
    """Finding of each grading of the second release."""
    one_run_s: float = 0.0
    making_s: float = 0.0
    grading_s: float = 0.0
    """Seconds of one whole grading of a submission that passes."""


def sdist(project: str, version: str, folder: Path) -> dict[str, str]:
    """Return the text files of a source distribution: path -> text."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--dest",
        str(folder),
    ]
    subprocess.run([*pip, f"{project}=={version}"], check=True)
    (archive,) = folder.glob("*.tar.gz")
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            path = str(PurePosixPath(*PurePosixPath(member.name).parts[1:]))
            file = tar.extractfile(member) if member.isfile() and member.size < MOST_BYTES else None
            if file is None or ".." in path.split("/"):
                continue
            try:
                found[path] = file.read().decode()
            except UnicodeDecodeError:
                continue
    return found


def python_with(packages: Sequence[str], folder: Path, source: str) -> str:
    """Return the path of a `python` that finds the packages and the source below the work tree."""
    site = folder / "site-packages"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), *packages], check=True
    )
    subprocess.run(["python3", "-m", "compileall", "-q", str(site)], check=False)
    program = folder / "python"
    places = f"{site}:{WORKDIR}/{PurePosixPath(source).parent}"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{places}:$PYTHONPATH" exec python3 "$@"\n')
    for path in (program, folder):
        path.chmod(0o755)
    return str(program)


async def measure(project: Project, folder: Path, gradings: int) -> Result:
    """Fetch both releases, make the twins with the first, and grade the second."""
    first, second = (sdist(project.name, version, folder / version) for version in (project.first, project.second))
    python = python_with((*TOOLS, *project.needs), folder, project.source)

    def is_source(path: str) -> bool:
        return path.startswith(project.source) and not path.startswith(project.tests)

    base = {path: text for path, text in first.items() if not is_source(path)}
    gold, submission = (
        patch_of(base, {path: text for path, text in release.items() if is_source(path)}) for release in (first, second)
    )
    files = sorted(
        path
        for path in base
        if path.startswith(project.tests)
        and PurePosixPath(path).name.startswith("test")
        and path.endswith(".py")
        and path not in project.left_out
    )
    options = AutoConfig(
        timeout_s=900, max_patch_bytes=1 << 25, max_files=10_000, twins_dir=str(folder / "twins"), retries=0
    )
    provider: LocalProvider = LocalSandboxConfig(state_dir=str(folder / "state"), visible=[str(folder)], nice=0).build()

    def task(names: Sequence[str]) -> Task:
        spec = F2pSpec(fail_to_pass=tuple(names), python=python, test_command="pytest -q -p no:cacheprovider")
        values: dict[str, Any] = {"task_id": project.name, "problem_statement": "", "image": "host", "workdir": WORKDIR}
        return Task(**values, grader=spec, files=base, gold_patch=gold.decode())

    result = Result(name=f"{project.name} {project.first} / {project.second}")
    passing: list[set[str]] = []
    for patch in (gold, submission):
        started = time.perf_counter()
        applied = await run_tests(F2pJudge(), task([f"{path}::x" for path in files]), patch, provider, options)
        assert applied.run is not None, applied.log
        result.one_run_s = time.perf_counter() - started
        passing.append({name for name, outcome in applied.run.outcomes.items() if outcome == "passed"})
        print(f"  {len(passing[-1])} of {len(applied.run.outcomes)} tests pass", flush=True)
    named = sorted(passing[0] & passing[1])
    started = time.perf_counter()
    twins = await TwinStore(options).of(F2pJudge(), task(named), provider)
    result.making_s = time.perf_counter() - started
    result.tests, result.functions, result.excused = len(named), len(twins.names), len(named) - len(twins.steady)
    result.sound = sum(bool(each) for each in twins.twins.values())
    result.strong = sum(any(twin.edit.kind in STRONG for twin in each) for each in twins.twins.values())
    for _ in range(gradings):
        verdict = await options.build().grade(task(named), submission, provider)
        control = verdict.metadata.get("control", {})
        result.findings.append(str(control.get("finding", verdict.status)))
        result.grading_s = verdict.seconds
        for run in control.get("runs", []):
            if run["surprises"]:
                print(f"  surprises: {run['surprises']}", flush=True)
    return result


def table(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table."""
    lines = [
        "| project | functions / tests | sound twin | strong twin | excused tests | findings of the other release | seconds: one run, grading, making |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in results:
        found = ", ".join(f"{one.findings.count(finding)} {finding}" for finding in dict.fromkeys(one.findings))
        lines.append(
            f"| {one.name} | {one.functions} / {one.tests} | {one.sound} | {one.strong} | {one.excused} | {found} "
            f"| {one.one_run_s:.1f}, {one.grading_s:.1f}, {one.making_s:.1f} |"
        )
    functions, sound, strong = (sum(getattr(one, key) for one in results) for key in ("functions", "sound", "strong"))
    if functions:
        lines.append(f"| all | {functions} | {sound / functions:.1%} | {strong / functions:.1%} | | | |")
    return "\n".join(lines)


def main() -> None:
    """Measure the projects one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", nargs="*", default=[project.name for project in PROJECTS])
    parser.add_argument("--gradings", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    for project in PROJECTS:
        if project.name not in arguments.projects:
            continue
        print(project.name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            results.append(asyncio.run(measure(project, Path(folder), arguments.gradings)))
        print(f"  {asdict(results[-1])}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
