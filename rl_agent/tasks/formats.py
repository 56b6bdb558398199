"""Conversion of published rows to tasks, one function per format. `data.row_defaults` fills in missing fields."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from rl_agent.tasks import fields
from rl_agent.tasks.fields import RowError
from rl_agent.tasks.reverse import reverse
from rl_agent.tasks.task import EvalCmdSpec, F2pSpec, SweBenchSpec, SweProSpec, Task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rl_agent.tasks.task import GraderSpec

CONDA: Final = "source /opt/miniconda3/bin/activate testbed && python"
"""Python command in the images of SWE-bench and its relatives."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
LONGEST_COMMAND: Final = 96 * 1024
"""Maximum length of a shell command. Linux allows 128 KiB."""
NO_SCRIPTS: Final = """\
# valid in sh and in Python: ends with an error that names the fix
raise SystemExit("the row has no run_script and no parser. Set data.scripts to SWE-bench Pro's run_scripts folder.")
"""
R2E_PARSER: Final = """\
import json, re, sys
text = open(sys.argv[1]).read() + open(sys.argv[2]).read()
tail = re.sub(r"\\x1b\\[[0-9;]*m", "", text).rpartition("short test summary info")[2]
name = lambda whole: ".".join(whole.split(" - ")[0].strip().split("::")[1:])
found = {name(rest): status for status, rest in re.findall(r"^(PASSED|FAILED|ERROR) (.*)$", tail, re.M)}
json.dump({"tests": [{"name": name, "status": found[name]} for name in found if name]}, open(sys.argv[3], "w"))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Context that a row's reader needs besides the row."""

    prompt_key: str
    label_key: str
    metadata_key: str
    folder: Path
    """Base of relative paths in rows."""
    scripts: Path | None
    """SWE-bench Pro's `run_scripts`: one folder per instance."""
    fallback_id: str
    defaults: Mapping[str, str]


def generic(row: Mapping[str, Any], place: Place) -> Task:
    """Read a row with `prompt`, `label` and `metadata`. The metadata contains exactly one grader."""
    metadata = fields.mapping(row, place.metadata_key)
    remote = fields.mapping(metadata, "remote_env_info")
    merged = {**remote, **{key: value for key, value in metadata.items() if value not in (None, "")}}
    if "image" not in merged and "image_url" in merged:
        merged["image"] = merged["image_url"]
    prompt = fields.optional_text(row, place.prompt_key)
    if prompt and merged.get("problem_statement") in (None, ""):
        merged["problem_statement"] = prompt
    merged |= {key: value for key, value in place.defaults.items() if merged.get(key) in (None, "")}
    label = row.get(place.label_key)
    return Task(
        task_id=fields.optional_text(merged, "instance_id") or place.fallback_id,
        problem_statement=fields.text(merged, "problem_statement", place.prompt_key),
        image=fields.text(merged, "image"),
        workdir=fields.absolute(merged, "workdir"),
        grader=_one_grader(merged, place),
        files=fields.files(merged, "repo_files"),
        pre_commands=fields.commands(merged, "pre_commands"),
        gold_patch=fields.optional_text(merged, "gold_patch", "patch"),
        label=None if label is None else str(label),
        metadata=metadata,
    )


def _one_grader(row: Mapping[str, Any], place: Place) -> GraderSpec:
    kinds: dict[str, Callable[[], GraderSpec]] = {
        "swepro": lambda: _swepro(fields.mapping(row, "swepro"), place),
        "eval_cmd": lambda: EvalCmdSpec(
            eval_cmd=fields.text(row, "eval_cmd"),
            files=fields.files(row, "files"),
            controls=fields.files(row, "controls"),
            test_files=fields.texts(row, "test_files"),
            fail_to_pass=fields.texts(row, "fail_to_pass", "FAIL_TO_PASS"),
            pass_to_pass=fields.texts(row, "pass_to_pass", "PASS_TO_PASS"),
        ),
        "f2p_script": lambda: _f2p(row),
        "f2p": lambda: _f2p(fields.mapping(row, "f2p")),
        "swebench": lambda: _swebench(fields.mapping(row, "swebench")),
    }
    present = [kind for kind in kinds if not _is_nothing(row.get(kind))]
    if len(present) != 1:
        got = f"this row has {len(present)} ({', '.join(present)})" if present else "this row has none"
        hint = " It looks like a row of SWE-bench. Set data=swebench." if "test_patch" in row and not present else ""
        raise RowError(f"a row needs exactly one grader of {', '.join(kinds)}, but {got}.{hint}")
    return kinds[present[0]]()


def _is_nothing(value: Any) -> bool:
    """Return whether a value is missing. Parquet stores every column in every row, every field in every struct."""
    return value in (None, "") or (isinstance(value, Mapping) and all(inner is None for inner in value.values()))


def _swebench(row: Mapping[str, Any], image: str = "") -> SweBenchSpec:
    """Return the row with its test lists as lists, under the names that the `swebench` package expects."""
    lists = {name: list(fields.texts(row, name, name.lower())) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    if not lists["FAIL_TO_PASS"]:
        raise RowError("`FAIL_TO_PASS` is missing or empty. List at least one test.")
    return SweBenchSpec(instance={**row, **lists, **({"image": image} if image else {})})


def _f2p(row: Mapping[str, Any]) -> F2pSpec:
    spec = F2pSpec(
        script=fields.optional_text(row, "f2p_script", "script") or "",
        test_patch=fields.optional_text(row, "f2p_patch", "test_patch") or "",
        fail_to_pass=fields.texts(row, "FAIL_TO_PASS", "fail_to_pass"),
        pass_to_pass=fields.texts(row, "PASS_TO_PASS", "pass_to_pass"),
        test_command=fields.optional_text(row, "test_command") or "",
        python=fields.optional_text(row, "python") or "python3",
    )
    if not spec.script and not spec.fail_to_pass:
        raise RowError("`f2p_script` or `FAIL_TO_PASS` is missing. Set one of them.")
    return spec


def _swepro(row: Mapping[str, Any], place: Place) -> SweProSpec:
    spec = SweProSpec(
        run_script=_text_or_file(row, "run_script", place),
        parser=_text_or_file(row, "parser", place),
        selected_test_files=fields.texts(row, "selected_test_files_to_run"),
        fail_to_pass=fields.texts(row, "fail_to_pass", "FAIL_TO_PASS"),
        pass_to_pass=fields.texts(row, "pass_to_pass", "PASS_TO_PASS"),
        before_repo_set_cmd=fields.optional_text(row, "before_repo_set_cmd") or "",
        parser_sha256=fields.optional_text(row, "parser_sha256") or "",
    )
    if not spec.fail_to_pass:
        raise RowError("`fail_to_pass` is missing or empty. List at least one test.")
    return spec if spec.parser_sha256 else replace(spec, parser_sha256=hashlib.sha256(spec.parser.encode()).hexdigest())


def _text_or_file(row: Mapping[str, Any], name: str, place: Place) -> str:
    """Return a field's text, or the content of the file that the field names."""
    value = fields.text(row, name)
    if "\n" in value.strip():
        return value
    path = place.folder / value.strip()
    try:
        return path.read_text()
    except (OSError, ValueError) as error:
        raise RowError(
            f"`{name}`: not a readable file: {value!r:.60}. Use an existing path or a script of several lines."
        ) from error


def swebench(row: Mapping[str, Any], place: Place) -> Task:
    """Read a row of SWE-bench or SWE-bench Verified."""
    name = fields.text(row, "instance_id")
    image = fields.optional_text(row, "image", "image_name", "docker_image")
    return _published(
        row,
        image=image or f"swebench/sweb.eval.x86_64.{name.replace('__', '_1776_').lower()}:latest",
        grader=_swebench(row, image or ""),
        gold_patch=fields.text(row, "patch"),
    )


def swebench_pro(row: Mapping[str, Any], place: Place) -> Task:
    """Read a row of SWE-bench Pro. Its run scripts and parsers are separate files in `data.scripts`."""
    name = fields.text(row, "instance_id")
    scripts = dict(row)
    folder = None if place.scripts is None else place.scripts / name
    for key, file in {"run_script": "run_script.sh", "parser": "parser.py"}.items():
        if not scripts.get(key) and folder is not None:
            path = folder / file
            if not path.is_file():
                raise RowError(f"`{key}` is missing, and data.scripts has no {name}/{file}. Add the file.")
            scripts[key] = path.read_text()
        elif not scripts.get(key):
            scripts[key] = NO_SCRIPTS  # published rows have no scripts; grading then reports the fix
    spec = _swepro(scripts, place)
    tag = fields.optional_text(row, "dockerhub_tag")
    base = fields.optional_text(row, "base_commit")
    before = [line for line in spec.before_repo_set_cmd.strip().splitlines() if line.strip()][:-1]
    reset = [f"git reset -q --hard {base}"] if base and spec.before_repo_set_cmd else []
    return _published(
        row,
        image=f"jefzda/sweap-images:{tag}" if tag else None,
        grader=spec,
        pre_commands=(*reset, *before),
        gold_patch=fields.optional_text(row, "patch"),
    )


def swe_smith(row: Mapping[str, Any], place: Place) -> Task:
    """Read a row of SWE-smith. Its `patch` is the bug, applied before the agent starts. The reverse is the solution."""
    patch = fields.text(row, "patch")
    image = fields.optional_text(row, "image_name")
    if image is not None and "/" not in image:
        image = f"jyangballin/{image.replace('__', '_1776_')}"
    return _published(
        row,
        image=image,
        grader=_names(row, python=CONDA),
        pre_commands=(_apply(patch),),
        gold_patch=reverse(patch),
    )


def r2e_gym(row: Mapping[str, Any], place: Place) -> Task:
    """Read a row of R2E-Gym. The test statuses must equal the expected map. The agent's sandbox has no tests."""
    statuses = fields.mapping(row, "expected_output_json").items()
    expected = {_COLOURS.sub("", str(name)).split(" - ")[0].strip(): str(status).lower() for name, status in statuses}
    expected.pop("", None)  # an empty name: pytest could not collect a file
    names = tuple(name for name, status in expected.items() if status == "passed")
    if not names:
        raise RowError("`expected_output_json`: no test is expected to pass. List at least one.")
    commit = fields.text(row, "commit_hash")
    spec = SweProSpec(
        run_script="[ -e r2e_tests ] || ln -s /r2e_tests r2e_tests\nbash run_tests.sh  # which starts pytest\n",
        parser=R2E_PARSER,
        selected_test_files=("r2e_tests/*",),
        fail_to_pass=names,
        expected=expected,
        parser_sha256=hashlib.sha256(R2E_PARSER.encode()).hexdigest(),
    )
    task = _published({**row, "instance_id": commit}, image=fields.optional_text(row, "docker_image"), grader=spec)
    return replace(task, hidden_paths=("r2e_tests", "run_tests.sh", "/r2e_tests"))


def swe_rebench(row: Mapping[str, Any], place: Place) -> Task:
    """Read a row of SWE-rebench or SWE-bench-extra. Only pytest is supported."""
    install = fields.mapping(row, "install_config")
    command = fields.optional_text(install, "test_cmd")
    if command is not None and "pytest" not in command:
        raise RowError(f"`install_config.test_cmd`: {command[:60]!r}: only pytest is supported.")
    return _published(
        row,
        image=fields.optional_text(row, "docker_image", "image_name", "image"),
        grader=replace(
            _names(row, python=CONDA),
            test_patch=fields.optional_text(row, "test_patch") or "",
            test_command=command or "",
        ),
        gold_patch=fields.optional_text(row, "patch"),
    )


def scale_swe(row: Mapping[str, Any], place: Place) -> Task:
    """Read a row of Scale-SWE."""
    return _published(
        row,
        image=fields.optional_text(row, "image_url"),
        grader=_f2p(row),
        pre_commands=fields.commands(row, "pre_commands"),
        gold_patch=fields.optional_text(row, "patch"),
    )


class RowFormat(StrEnum):
    """Format of a data set's rows."""

    generic = "generic"
    """Rows with `prompt`, `label` and `metadata`."""
    swebench = "swebench"
    swebench_pro = "swebench_pro"
    swe_smith = "swe_smith"
    r2e_gym = "r2e_gym"
    swe_rebench = "swe_rebench"
    scale_swe = "scale_swe"


READERS: Final[Mapping[RowFormat, Callable[[Mapping[str, Any], Place], Task]]] = {
    RowFormat.generic: generic,
    RowFormat.swebench: swebench,
    RowFormat.swebench_pro: swebench_pro,
    RowFormat.swe_smith: swe_smith,
    RowFormat.r2e_gym: r2e_gym,
    RowFormat.swe_rebench: swe_rebench,
    RowFormat.scale_swe: scale_swe,
}


def _names(row: Mapping[str, Any], *, python: str) -> F2pSpec:
    spec = _f2p({**row, "test_patch": None, "python": row.get("python") or python})
    if not spec.fail_to_pass:
        raise RowError("`FAIL_TO_PASS` is missing or empty")
    return spec


def _published(
    row: Mapping[str, Any],
    *,
    image: str | None,
    grader: GraderSpec,
    pre_commands: tuple[str, ...] = (),
    gold_patch: str | None = None,
) -> Task:
    """Return the task of a published row."""
    return Task(
        task_id=fields.text(row, "instance_id"),
        problem_statement=fields.text(row, "problem_statement"),
        image=image or fields.text(row, "image"),
        workdir=fields.absolute(row, "workdir"),
        grader=grader,
        pre_commands=pre_commands,
        gold_patch=gold_patch,
        metadata={key: row[key] for key in ("repo", "base_commit", "version") if key in row},
    )


def _apply(patch: str) -> str:
    encoded = base64.b64encode((patch if patch.endswith("\n") else patch + "\n").encode()).decode()
    if len(encoded) > LONGEST_COMMAND:
        raise RowError(f"`patch`: {len(patch)} characters are too long. Use at most {LONGEST_COMMAND * 3 // 4}.")
    return f"echo {encoded} | base64 -d | git apply --whitespace=nowarn -"
