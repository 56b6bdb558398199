"""The attack matrix: what submissions do to be rewarded without solving the task, against every grader, in real sandboxes.

Each submission changes the same small repository, whose `add` subtracts.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.graders.auto import AutoConfig
from rl_agent.graders.signals import Signal
from rl_agent.graders.swebench_log import statuses
from rl_agent.graders.swebench_package import Package
from rl_agent.tasks.task import EvalCmdSpec, F2pSpec, SweBenchSpec, SweProSpec
from tests.cheats import BASE, CHEATS, IN_PROCESS, RESOURCES, RIGHT, TESTS, Cheat
from tests.honest.packages import SANDBOX_PYTHON
from tests.local import calc_task, local_provider, needs_root
from tests.patches import patch_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.graders.base import Verdict
    from rl_agent.sandboxes.local.provider import LocalProvider
    from rl_agent.tasks.task import GraderSpec

pytestmark = [needs_root, pytest.mark.slow]

NAMES = ("tests/test_calc.py::test_add", "tests/test_calc.py::test_negative")
TEST_PATCH = (
    "diff --git a/tests/test_calc.py b/tests/test_calc.py\n--- a/tests/test_calc.py\n+++ b/tests/test_calc.py\n"
    "@@ -1,8 +1,9 @@\n from calc import add\n+\n" + "".join(f" {line}\n" for line in TESTS.splitlines()[1:8])
)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pytest for the sandboxes, whose Python has none, and a `python` that finds it."""
    import _pytest
    import iniconfig
    import packaging
    import pluggy
    import pygments

    folder = tmp_path_factory.mktemp("tools")
    for package in (_pytest, pytest, iniconfig, packaging, pluggy, pygments):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, folder / "site-packages" / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    installed = Path(str(_pytest.__file__)).parents[1]
    shutil.copy(installed / "py.py", folder / "site-packages")
    for source in (*installed.glob("pluggy-*.dist-info"), *installed.glob("pytest-[0-9]*.dist-info")):
        shutil.copytree(source, folder / "site-packages" / source.name)
    subprocess.run([SANDBOX_PYTHON, "-m", "compileall", "-q", str(folder)], check=True)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}/site-packages:$PYTHONPATH" exec python3 "$@"\n')
    program.chmod(0o755)
    for path in (folder, *folder.parents):
        if path.is_relative_to("/tmp") and path != Path("/tmp"):
            path.chmod(0o755)
    return folder


@pytest.fixture
def provider(tmp_path: Path, tools: Path) -> LocalProvider:
    return local_provider(tmp_path / "state", visible=[str(tools)])


class PassedLines:
    """Stands for the package's module `grading` where the package is not installed: `PASSED name`, a line each."""

    @staticmethod
    def get_logs_eval(test_spec: object, path: str) -> tuple[dict[str, str], bool]:
        lines = (line.split() for line in Path(path).read_text().splitlines())
        return {words[1]: words[0] for words in lines if len(words) > 1 and words[0] in ("PASSED", "FAILED")}, True


def package(instance: Mapping[str, Any]) -> Package:
    script = (
        "#!/bin/bash\nset -uxo pipefail\ngit diff\n: '>>>>> Start Test Output'\n"
        f"{instance['python']} -m pytest -rA -p no:cacheprovider tests/test_calc.py\n: '>>>>> End Test Output'\n"
    )
    return Package(
        test_spec=None,
        grading=PassedLines,
        script=script,
        repo="calc",
        eval_type="pass_and_fail",
        fail_to_pass=NAMES,
        pass_to_pass=(),
    )


@pytest.fixture(autouse=True)
def _no_package_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read_here(what: str, instance: Mapping[str, Any], log: bytes, *, timeout_s: float) -> dict[str, Any]:
        return statuses(package(instance), log)

    monkeypatch.setattr("rl_agent.graders.swebench.package_of", package)
    monkeypatch.setattr("rl_agent.graders.swebench.read_log", read_here)


HIDDEN = {"hidden.py": "from calc import add\nassert add(2, 3) == 5\nassert add(-1, 1) == 0\n"}


def spec(kind: str, tools: Path) -> GraderSpec:
    python = f"{tools}/python"
    script = (
        TESTS
        + "\n\nif __name__ == '__main__':\n    import pytest\n    raise SystemExit(pytest.main(['-q', __file__]))\n"
    )
    parser = (
        "import json, re, sys\ntext = open(sys.argv[1]).read() + open(sys.argv[2]).read()\n"
        "found = re.findall(r'(\\S+::\\S+)\\s+(PASSED|FAILED|ERROR|SKIPPED)', text)\n"
        "json.dump({'tests': [{'name': a, 'status': b} for a, b in found]}, open(sys.argv[3], 'w'))\n"
    )
    run = f"{python} -m pytest -v -p no:cacheprovider tests/test_calc.py || true\n"
    specs: dict[str, GraderSpec] = {
        "named": F2pSpec(fail_to_pass=NAMES, python=python),
        "script": F2pSpec(script=script, python=python),
        "plain script": F2pSpec(script="from calc import add\nassert add(2, 3) == 5\n", python=python),
        "swepro": SweProSpec(
            run_script=run, parser=parser, selected_test_files=("tests/test_calc.py",), fail_to_pass=NAMES
        ),
        "swebench": SweBenchSpec(instance={"instance_id": "calc", "python": python, "test_patch": TEST_PATCH}),
        "test patch": F2pSpec(fail_to_pass=NAMES, test_patch=TEST_PATCH, python=python),
        "eval_cmd": EvalCmdSpec(eval_cmd="python3 hidden.py", files=HIDDEN),
        "eval_cmd by script": EvalCmdSpec(eval_cmd="sh run.sh", files=HIDDEN),
        "eval_cmd by make": EvalCmdSpec(eval_cmd="make check", files=HIDDEN),
        "eval_cmd with names": EvalCmdSpec(
            eval_cmd=f"{python} -m pytest -q -p no:cacheprovider tests",
            fail_to_pass=NAMES[:1],
            pass_to_pass=NAMES[1:],
        ),
    }
    return specs[kind]


async def judged(
    provider: LocalProvider, tools: Path, kind: str, after: dict[str, str | None], **changes: Any
) -> Verdict:
    gold = patch_of(BASE, {"calc.py": RIGHT}).decode()
    task = calc_task(files=BASE, grader=spec(kind, tools), gold_patch=gold)
    grader = AutoConfig(**{"timeout_s": 300, "twins_dir": f"{tools}/twins", **changes}).build()
    verdict: Verdict = await grader.grade(task, patch_of(BASE, after), provider)
    return verdict


def cases() -> list[Any]:
    """Every cheat before each of its graders; `make test` runs a sample, each before its first."""
    return [
        pytest.param(
            kind,
            cheat,
            id=f"{kind}-{cheat.name}",
            marks=() if cheat.is_sample and kind == cheat.kinds[0] else pytest.mark.long,
        )
        for cheat in CHEATS
        for kind in cheat.kinds
    ]


@pytest.mark.parametrize(("kind", "cheat"), cases())
async def test_a_cheat_gets_nothing_and_its_honest_sibling_everything(
    provider: LocalProvider, tools: Path, kind: str, cheat: Cheat
) -> None:
    verdict = await judged(provider, tools, kind, cheat.files, timeout_s=20 if cheat in RESOURCES else 300)
    assert verdict.reward == 0.0, (verdict.status, verdict.log, verdict.metadata)
    assert verdict.status in ("failed", "tampered", "empty_diff", "timeout", "apply_failed"), verdict.log
    honest = await judged(provider, tools, kind, cheat.honest)
    assert (honest.status, honest.reward) == ("solved", 1.0), (honest.log, honest.metadata)
    assert honest.metadata["control"]["finding"] == "right"


def test_there_are_enough_cheats_of_every_kind() -> None:
    assert len(CHEATS) >= 60
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("script", "leaves at import"),
        ("script", "leaves at exit"),
        ("swepro", "hook of conftest"),
        ("swepro", "tests edited"),
    ],
)
async def test_the_lenient_mode_rewards_what_common_recipes_reward(
    provider: LocalProvider, tools: Path, kind: str, name: str
) -> None:
    (cheat,) = (cheat for cheat in CHEATS if cheat.name == name)
    verdict = await judged(provider, tools, kind, cheat.files, strict=False)
    assert verdict.reward == 1.0, (name, verdict.log)


async def test_tampering_is_recorded_and_costs_the_penalty(provider: LocalProvider, tools: Path) -> None:
    verdict = await judged(provider, tools, "named", IN_PROCESS[0].files, penalty=0.5)
    assert (verdict.status, verdict.reward) == ("tampered", -0.5)
    control = verdict.metadata["control"]
    assert control["finding"] == "tampered"
    assert any("passed" in run["surprises"].values() for run in control["runs"])
    assert verdict.metadata["signals"] == {Signal.ALWAYS_EQUAL: ["calc.py"]}
