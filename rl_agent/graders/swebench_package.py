"""One interface to `swebench` 4.1 and 5.x: the script, the named tests and the log parser of a row.

Version 4.1 knows the commands of each repository, 5.x reads script, parser and image from the row. Neither uses the network here:
`make_test_spec` of 4.1 downloads requirements from GitHub for each row, so the specification is built without it.
"""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rl_agent.errors import ConfigError, SetupError

if TYPE_CHECKING:
    from collections.abc import Mapping

START: Final = ">>>>> Start Test Output"
END: Final = ">>>>> End Test Output"
_BRINGS_TESTS: Final = re.compile(
    r"^git checkout [0-9a-f]{7,40} [^\n]*\n|^git apply -v - <<'(?P<end>EOF_\w+)'\n.*?^(?P=end)\n",
    re.MULTILINE | re.DOTALL,
)
"""Lines of a script that bring or remove the tests."""
FAIL_ONLY: Final = "fail_only"
"""Kind of a repository whose log parser records failures only. Absent tests count as passed there."""
FIELDS_OF_5: Final = ("eval_script", "log_parser", "eval_type")
ENVIRONMENT: Final = "testbed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One row, as the installed package reads it."""

    test_spec: Any
    """The test specification object of the package."""
    grading: Any
    """The module `grading` of the package."""
    script: str
    """Bash script that installs the project, brings the tests, and runs them between two marks."""
    repo: str
    eval_type: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]


def package_of(instance: Mapping[str, Any]) -> Package:
    """Return a row as the package reads it. Raises ConfigError without the package, SetupError for an unknown row."""
    name = instance.get("instance_id")
    try:
        grading = importlib.import_module("swebench.harness.grading")
        utils = importlib.import_module("swebench.harness.utils")
    except ImportError as error:
        raise ConfigError(
            f"the row {name} needs the package swebench: {error}. Run `pip install 'rl_agent[swebench]'`."
        ) from error
    row = {
        **instance,
        "FAIL_TO_PASS": _listed(instance, "FAIL_TO_PASS"),
        "PASS_TO_PASS": _listed(instance, "PASS_TO_PASS"),
    }
    try:
        test_spec, eval_type = _spec_of_5(utils, row) if hasattr(utils, "make_test_spec") else _spec_of_4(row)
    except KeyError as error:
        raise SetupError(f"the row {name} has a {error} that swebench does not know. Leave the row out.") from error
    return Package(
        test_spec=test_spec,
        grading=grading,
        script=str(test_spec.eval_script),
        repo=str(test_spec.repo),
        eval_type=eval_type,
        fail_to_pass=tuple(row["FAIL_TO_PASS"]),
        pass_to_pass=tuple(row["PASS_TO_PASS"]),
    )


def _spec_of_5(utils: Any, row: Mapping[str, Any]) -> tuple[Any, str]:
    missing = [field for field in FIELDS_OF_5 if not row.get(field)]
    if missing:
        raise SetupError(
            f"the row {row.get('instance_id')} lacks {', '.join(missing)}, which swebench 5 reads from rows. "
            "Use the data set as republished for swebench 5, or run `pip install 'swebench<5'`."
        )
    spec = utils.make_test_spec({"image": "", **row})
    return spec, str(spec.eval_type)


def _spec_of_4(row: Mapping[str, Any]) -> tuple[Any, str]:
    constants = importlib.import_module("swebench.harness.constants")
    scripts = importlib.import_module("swebench.harness.test_spec.create_scripts")
    specs = constants.MAP_REPO_VERSION_TO_SPECS[row["repo"]][row["version"]]
    script = scripts.make_eval_script_list(
        row, specs, ENVIRONMENT, f"/{ENVIRONMENT}", row["base_commit"], row["test_patch"]
    )
    spec = importlib.import_module("swebench.harness.test_spec.test_spec").TestSpec(
        instance_id=row["instance_id"],
        repo=row["repo"],
        version=row["version"],
        repo_script_list=[],
        eval_script_list=script,
        env_script_list=[],
        arch="x86_64",
        FAIL_TO_PASS=row["FAIL_TO_PASS"],
        PASS_TO_PASS=row["PASS_TO_PASS"],
        language=constants.MAP_REPO_TO_EXT[row["repo"]],
        docker_specs={},
        namespace=None,
    )
    return spec, FAIL_ONLY if row["repo"] in constants.FAIL_ONLY_REPOS else "pass_and_fail"


def _listed(row: Mapping[str, Any], name: str) -> list[str]:
    value = row.get(name)
    return [str(test) for test in (json.loads(value) if isinstance(value, str) else value or ())]


def without_tests(script: str) -> str | None:
    """Return the script without the lines that bring the tests, so that it does not hold them; None if it brings none."""
    made, count = _BRINGS_TESTS.subn("", script)
    return made if count else None


def last_block(log: bytes) -> bytes | None:
    """Return the last marked block of a log, with its marks; None if there is none.

    Text before the last start was not printed by the tests, but by the installation or by `git diff` of the patch.
    """
    before, found, _ = log.rpartition(END.encode())
    _, started, block = before.rpartition(START.encode())
    if not found or not started:
        return None
    return b"\n".join((START.encode(), block.replace(END.encode(), b""), END.encode()))
