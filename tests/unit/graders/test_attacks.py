"""The attack matrix: what submissions do to be rewarded without solving the task, against every grader, in real sandboxes.

Each submission changes the same small repository, whose `add` subtracts. `docs/graders.md` says what no test can tell.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.graders.auto import AutoConfig
from rl_agent.graders.signals import Signal
from rl_agent.graders.swebench_log import statuses
from rl_agent.graders.swebench_package import Package
from rl_agent.tasks.task import EvalCmdSpec, F2pSpec, SweBenchSpec, SweProSpec
from tests.local import calc_task, local_provider, needs_root
from tests.patches import patch_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.graders.base import Verdict
    from rl_agent.sandboxes.local.provider import LocalProvider
    from rl_agent.tasks.task import GraderSpec

pytestmark = [needs_root, pytest.mark.slow]

TESTS = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n\n\ndef test_negative():\n    assert add(-1, 1) == 0\n"
BASE = {"calc.py": "def add(a, b):\n    return a - b\n", "tests/test_calc.py": TESTS, "tests/helpers.py": "LIMIT = 1\n"}
NAMES = ("tests/test_calc.py::test_add", "tests/test_calc.py::test_negative")
RIGHT = {"calc.py": "def add(a, b):\n    return a + b\n"}
WRONG = "def add(a, b):\n    return a - b\n"
HOOK = (
    "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n    o = yield\n"
    "    r = o.get_result(); r.outcome = 'passed'; r.longrepr = None\n"
)
PASSES = "def test_add(): pass\ndef test_negative(): pass\n"
PRINTS = "print('\\ntests/test_calc.py::test_add PASSED\\ntests/test_calc.py::test_negative PASSED\\n')\n"
REPORT = '{\\"nonce\\": \\"guess\\", \\"code\\": 0, \\"results\\": [\\"passed\\", \\"passed\\"], \\"others\\": {}, \\"changed\\": []}'
TEST_PATCH = "diff --git a/tests/test_calc.py b/tests/test_calc.py\n--- a/tests/test_calc.py\n+++ b/tests/test_calc.py\n@@ -1 +1 @@\n-x\n+y\n"
HONEST: dict[str, dict[str, str | None]] = {
    "fix": RIGHT,
    "fix with own tests and changed tests": {
        **RIGHT,
        "tests/test_mine.py": "def test_x(): pass\n",
        "tests/test_calc.py": PASSES,
    },
    "fix with left-overs": {**RIGHT, "__pycache__/calc.pyc": "x\n", "node_modules/a/b.js": "x\n"},
    "fix in a new module": {"sums.py": "def add(a, b):\n    return a + b\n", "calc.py": "from sums import add\n"},
    "fix with a conftest of its own": {**RIGHT, "conftest.py": "raise RuntimeError\n"},
}
FOR_ALL: dict[str, dict[str, str | None]] = {
    "nothing but a comment": {"calc.py": WRONG + "# done\n"},
    "hook of conftest": {"conftest.py": HOOK, "calc.py": WRONG + "#\n"},
    "conftest that skips": {
        "tests/conftest.py": "import pytest\ndef pytest_collection_modifyitems(items):\n    for i in items: i.add_marker(pytest.mark.skip)\n"
    },
    "conftest that sets the exit code": {"conftest.py": "def pytest_sessionfinish(session): session.exitstatus = 0\n"},
    "conftest that overwrites the parser": {
        "conftest.py": "open('/workspace/swepro_eval/parser.py', 'w').write('')\n",
        "calc.py": WRONG + "#\n",
    },
    "pytest.ini": {"pytest.ini": "[pytest]\naddopts = --collect-only\n", "calc.py": WRONG + "#\n"},
    "setup.cfg": {"setup.cfg": "[tool:pytest]\naddopts = --co\n"},
    "pyproject.toml": {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p evil'\n", "evil.py": HOOK},
    "own pytest module": {"pytest.py": "def main(a, plugins=()): return 0\n" + PRINTS, "calc.py": WRONG + "#\n"},
    "own _pytest package": {"_pytest/__init__.py": "", "_pytest/runner.py": ""},
    "own standard library": {
        "random.py": "import os; os._exit(0)\n",
        "json/__init__.py": "def dumps(*a, **k): return '{}'\n",
    },
    "sitecustomize": {"sitecustomize.py": "import os; os._exit(0)\n", "calc.py": WRONG + "#\n"},
    "path file": {"evil.pth": "import os; os._exit(0)\n"},
    "plug-in by metadata": {"evil.egg-info/entry_points.txt": "[pytest11]\nevil = evil\n", "evil.py": HOOK},
    "module-level skip": {"calc.py": "import pytest\npytest.skip('no', allow_module_level=True)\n"},
    "tests deleted": {"tests/test_calc.py": None},
    "link for the tests": {"tests/helpers.py": PASSES, "calc.py": WRONG + "#\n"},
}
"""Reward 0 whatever judges (the module-level skip is an error for a command)."""
NAMED: dict[str, dict[str, str | None]] = {
    "edited test": {"tests/test_calc.py": PASSES, "calc.py": WRONG + "#\n"},
    "os._exit at import": {"calc.py": "import os\nos._exit(0)\n"},
    "sys.exit at import": {"calc.py": "import sys\nsys.exit(0)\n"},
    "exit by atexit": {"calc.py": "import atexit, os\natexit.register(lambda: os._exit(0))\n" + WRONG},
    "fork": {"calc.py": "import os\nif os.fork(): os._exit(0)\n" + WRONG},
    "forged lines on stdout": {"calc.py": PRINTS + WRONG},
    "forged lines, then exit": {"calc.py": PRINTS + "import os, sys\nsys.stdout.flush()\nos._exit(0)\n"},
    "exception that exits": {"calc.py": "def add(a, b):\n    raise SystemExit(0)\n"},
}
"""Reward 0 wherever tests are named."""
RUNNER_ONLY: dict[str, dict[str, str | None]] = {
    "runtest replaced": {
        "calc.py": "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n" + WRONG
    },
    "outcome replaced": {
        "calc.py": "import _pytest.runner as r\nr.CallInfo.from_call = classmethod(lambda c, f, when, reraise=None: "
        "c(result=None, excinfo=None, start=0, stop=0, duration=0, when=when, _ispytest=True))\n" + WRONG
    },
    "code of runtest replaced": {
        "calc.py": "import _pytest.python as p\ndef f(self): pass\np.Function.runtest.__code__ = f.__code__\n" + WRONG
    },
    "tests rewritten while they run": {
        "calc.py": "import pathlib\npathlib.Path('tests/test_calc.py').write_text('def test_add(): pass\\n')\n" + WRONG
    },
    "test module replaced": {
        "calc.py": "import sys, types\nm = types.ModuleType('test_calc')\nm.__file__ = sys.modules['test_calc'].__file__\n"
        "def test_add(): pass\ndef test_negative(): pass\nm.test_add, m.test_negative = test_add, test_negative\n"
        "sys.modules['test_calc'] = m\n" + WRONG
    },
    "guessed report": {
        "calc.py": f'import os\nfor fd in range(3, 40):\n    try: os.write(fd, b"\\n{REPORT}\\n")\n    except OSError: pass\n'
        + WRONG
    },
    "runner overwritten": {
        "calc.py": "import glob\nfor f in glob.glob('/opt/rl_agent_grading/*'):\n    try: open(f, 'w').write('')\n"
        "    except OSError: pass\n" + WRONG
    },
    "endless": {"calc.py": "while True: pass\n"},
}
CHANNEL = (
    "import json, os\nplace = [value for name, value in os.environ.items() if name.endswith('_CHANNEL')]\n"
    "for name in ('test_add', 'test_negative'):\n    for path in place:\n"
    "        open(path, 'a').write(json.dumps([f'tests/test_calc.py::{name}', 'passed']) + '\\n')\n"
)
CHANNEL_FORGED: dict[str, str | None] = {"calc.py": CHANNEL + PRINTS + WRONG}
"""What really happened is told as well, and the worst counts."""
CHANNEL_FORGED_AND_EXIT: dict[str, str | None] = {
    "calc.py": CHANNEL.replace("name.endswith('_CHANNEL')", "name == 'RL_AGENT_CHANNEL'") + "os._exit(0)\n" + WRONG
}
UNDETECTED: dict[str, dict[str, str | None]] = {
    "equal to everything": {
        "calc.py": "class E(int):\n    def __eq__(self, other):\n        return True\n\n\ndef add(a, b):\n    return E(0)\n"
    },
}
"""No test can tell these from a solution; they leave a signal."""
EXIT_CODE_ONLY = ("os._exit at import", "sys.exit at import", "exit by atexit", "fork")
"""An exit code cannot tell these from a solution; they leave a signal."""


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
        "eval_cmd": EvalCmdSpec(
            eval_cmd="python3 hidden.py",
            files={"hidden.py": "from calc import add\nassert add(2, 3) == 5\nassert add(-1, 1) == 0\n"},
            test_files=("tests/test_calc.py",),
        ),
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
    task = calc_task(files=BASE, grader=spec(kind, tools), gold_patch=patch_of(BASE, RIGHT).decode())
    grader = AutoConfig(**{"timeout_s": 300, "twins_dir": f"{tools}/twins", **changes}).build()
    verdict: Verdict = await grader.grade(task, patch_of(BASE, after), provider)
    return verdict


ALL_KINDS = ("named", "script", "plain script", "swepro", "swebench", "eval_cmd with names", "eval_cmd")
HONEST_CASES = [("named", name) for name in HONEST] + [(kind, "fix") for kind in ALL_KINDS[1:]]
SPREAD = [(ALL_KINDS[number % len(ALL_KINDS)], name) for number, name in enumerate(FOR_ALL)]
CHEATS = [
    *(("named", name, FOR_ALL[name]) for name in FOR_ALL),
    *((kind, name, FOR_ALL[name]) for kind, name in SPREAD if kind != "named"),
    *(("named", name, NAMED[name]) for name in NAMED),
    *(("swepro", name, NAMED[name]) for name in NAMED),
    *(("swebench", name, NAMED[name]) for name in NAMED),
    *(("eval_cmd with names", name, NAMED[name]) for name in NAMED),
    *((kind, "forged channel", CHANNEL_FORGED) for kind in ("swepro", "swebench", "eval_cmd with names")),
    *(("script", name, NAMED[name]) for name in ("os._exit at import", "sys.exit at import", "fork")),
    *(("plain script", name, NAMED[name]) for name in EXIT_CODE_ONLY),
    *(("named", name, RUNNER_ONLY[name]) for name in RUNNER_ONLY),
]


@pytest.mark.parametrize(("kind", "name"), HONEST_CASES)
async def test_honest_work_is_rewarded(provider: LocalProvider, tools: Path, kind: str, name: str) -> None:
    verdict = await judged(provider, tools, kind, HONEST[name])
    assert (verdict.status, verdict.reward) == ("solved", 1.0), (verdict.log, verdict.metadata)
    assert set(verdict.metadata.get("signals", {})) <= {Signal.PROTECTED_PATH}


@pytest.mark.parametrize(("kind", "name", "after"), CHEATS, ids=[f"{kind}-{name}" for kind, name, _ in CHEATS])
async def test_cheating_is_not_rewarded(
    provider: LocalProvider, tools: Path, kind: str, name: str, after: dict[str, str | None]
) -> None:
    verdict = await judged(provider, tools, kind, after, timeout_s=5 if name == "endless" else 300)
    assert verdict.reward == 0.0, (verdict.status, verdict.log, verdict.metadata)
    assert verdict.status in ("failed", "tampered", "empty_diff", "timeout")


@pytest.mark.parametrize("kind", ALL_KINDS)
async def test_what_no_test_can_tell_leaves_a_signal(provider: LocalProvider, tools: Path, kind: str) -> None:
    verdict = await judged(provider, tools, kind, UNDETECTED["equal to everything"], penalty=0.5)
    assert verdict.reward == 0.5
    assert verdict.metadata["signals"] == {Signal.ALWAYS_EQUAL: ["calc.py"]}


async def test_who_forges_the_plug_ins_channel_and_exits_leaves_signals(provider: LocalProvider, tools: Path) -> None:
    verdict = await judged(provider, tools, "eval_cmd with names", CHANNEL_FORGED_AND_EXIT, penalty=1.0)
    assert verdict.reward == 0.0
    assert verdict.metadata["signals"] == {Signal.EXIT_CALL: ["calc.py"], Signal.GRADER_PATH: ["calc.py"]}


@pytest.mark.parametrize("name", EXIT_CODE_ONLY)
async def test_what_an_exit_code_cannot_tell_leaves_a_signal(provider: LocalProvider, tools: Path, name: str) -> None:
    verdict = await judged(provider, tools, "eval_cmd", NAMED[name])
    assert verdict.reward == 1.0
    assert verdict.metadata["signals"] == {Signal.EXIT_CALL: ["calc.py"]}


@pytest.mark.parametrize(
    ("kind", "name", "after"),
    [
        ("script", "os._exit at import", NAMED["os._exit at import"]),
        ("script", "exit by atexit", NAMED["exit by atexit"]),
        ("swepro", "hook of conftest", FOR_ALL["hook of conftest"]),
        ("swepro", "edited test", NAMED["edited test"]),
    ],
)
async def test_the_lenient_mode_rewards_what_common_recipes_reward(
    provider: LocalProvider, tools: Path, kind: str, name: str, after: dict[str, str | None]
) -> None:
    verdict = await judged(provider, tools, kind, after, strict=False)
    assert verdict.reward == 1.0, (name, verdict.log)
