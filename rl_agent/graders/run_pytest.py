# ruff: noqa: UP006, UP035, PTH100, PTH109, PTH110, PTH118, PTH120, PTH123, D102, D103, C901, PLC0415, F401, I001, E401, S102, T201, BLE001, SIM102
"""Runs named tests in the sandbox and reports each one's outcome on a channel of its own. Written for Python 3.6 and later.

Never imported by rl_agent: its text is put into the grading sandbox. It imports pytest before the repository is on `sys.path`,
collects outcomes by the outermost hook from what really was raised, and at the end compares pytest's own functions with what
they were before any code of the repository ran. Code under test shares this process, so a determined attacker can still forge.
"""

import json
import os
import sys
import traceback
import types
from typing import Any, Dict, Iterator, List, Set, Tuple

Functions = Dict[Tuple[str, str, str], Tuple[Any, Any]]


def functions_of(roots: Set[str]) -> Functions:
    """(module, name, attribute) -> function, for every function of the modules below `roots`."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in roots and name not in roots:
            continue
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if isinstance(value, types.FunctionType):
                found[(name, key, "")] = (value, value.__code__)
            elif isinstance(value, type) and getattr(value, "__module__", "") == name:
                for attribute, member in list(vars(value).items()):
                    inner = getattr(member, "__func__", getattr(member, "fget", member))
                    if isinstance(inner, types.FunctionType):
                        found[(name, key, attribute)] = (inner, inner.__code__)
    return found


def changed(before: Functions, after: Functions, workdir: str) -> List[str]:
    """Functions that are not what they were, unless an installed plug-in replaced them."""
    names = []
    for key, (function, code) in before.items():
        now = after.get(key)
        if now is not None and now[0] is function and now[1] is code:
            continue
        place = os.path.realpath(now[1].co_filename) if now is not None else ""
        if "site-packages" in place or "dist-packages" in place:
            if not place.startswith(os.path.realpath(workdir) + os.sep):
                continue
        names.append(".".join(part for part in key if part))
    return names


class Matcher:
    """Which wanted names a collected test answers to."""

    def __init__(self, names: List[str], whole_files: List[str], expand: bool) -> None:
        self.exact = {}  # type: Dict[str, List[int]]
        self.open = []  # type: List[Tuple[str, int]]
        self.expand = expand
        for index, name in enumerate(names):
            self.exact.setdefault(name, []).append(index)
            if name.count("[") > name.count("]"):  # cut off by whoever made the list
                self.open.append((name, index))
        self.whole_files = set(whole_files)

    def __call__(self, nodeid: str) -> List[int]:
        found = list(self.exact.get(nodeid, ()))
        found += [index for name, index in self.open if nodeid.startswith(name)]
        if self.expand and "[" in nodeid:
            found += self.exact.get(nodeid[: nodeid.index("[")], ())
        return found

    def wants(self, nodeid: str) -> bool:
        return bool(self(nodeid)) or nodeid.split("::")[0] in self.whole_files


def run_tests(request: Dict[str, Any]) -> Dict[str, Any]:
    """Run the named tests; returns the report."""
    workdir = request["workdir"]
    import pytest, pluggy, _pytest, unittest.case, unittest.suite  # the real ones: the repository is not on sys.path yet

    roots = {"pytest", "_pytest", "pluggy", "unittest.case", "unittest.suite"}
    matcher = Matcher(request["names"], request["whole_files"], request["expand"])
    touched = {os.path.realpath(os.path.join(workdir, path)) for path in request["touched"]}
    outcomes = {}  # type: Dict[str, str]
    codes = {}  # type: Dict[str, Any]

    class Recorder:
        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(self, config: Any, items: List[Any]) -> None:
            kept = [item for item in items if matcher.wants(item.nodeid)]
            gone = [item for item in items if not matcher.wants(item.nodeid)]
            if gone:
                config.hook.pytest_deselected(items=gone)
                items[:] = kept
            for item in kept:
                codes[item.nodeid] = getattr(getattr(item, "obj", None), "__code__", None)

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item: Any, call: Any) -> Iterator[None]:
            yield
            raised = call.excinfo
            if raised is None:
                if call.when == "call":
                    code = getattr(getattr(item, "obj", None), "__code__", None)
                    # a test that the patch brought into the process under the name of another, or put in its place since
                    fake = code is not None and os.path.realpath(code.co_filename) in touched
                    outcomes.setdefault(
                        item.nodeid, "changed" if fake or codes.get(item.nodeid) is not code else "passed"
                    )
            elif (
                raised.errisinstance(pytest.skip.Exception)
                if hasattr(raised, "errisinstance")
                else raised.typename == "Skipped"
            ):
                outcomes[item.nodeid] = "skipped"
            elif call.when == "call" and item.get_closest_marker("xfail") is not None:
                outcomes[item.nodeid] = "xfailed"
            else:
                outcomes[item.nodeid] = "failed" if call.when == "call" else "error"

    before = functions_of(roots)
    sys.path.insert(0, workdir)
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", workdir, "--continue-on-collection-errors", "-rA"]
    arguments += request["arguments"]
    arguments += [name for name in request["files"] if os.path.exists(os.path.join(workdir, name))]
    code = int(pytest.main(arguments, plugins=[Recorder()]))
    order = ("passed", "xfailed", "skipped", "changed", "failed", "error")
    results = ["absent"] * len(request["names"])
    others = {}  # type: Dict[str, int]
    for nodeid, outcome in outcomes.items():
        matched = matcher(nodeid)
        for index in matched:
            if results[index] == "absent" or order.index(outcome) > order.index(results[index]):
                results[index] = outcome
        if not matched:
            others[outcome] = others.get(outcome, 0) + 1
    return {
        "code": code,
        "results": results,
        "others": others,
        "changed": changed(before, functions_of(roots), workdir),
    }


def run_script(request: Dict[str, Any]) -> Dict[str, Any]:
    """Run a script to its end; only the script itself may end it."""
    path = os.path.join(request["workdir"], request["script"])
    sys.path.insert(0, request["workdir"])
    sys.argv = [path]
    outcome = "passed"
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec")
        exec(code, {"__name__": "__main__", "__file__": path, "__builtins__": __builtins__})
    except SystemExit as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = trace.tb_frame.f_code.co_filename if trace is not None else ""
        own = place == path
        outcome = "passed" if own and error.code in (None, 0) else "failed"
        print("ended by", place, "with", error.code)
    except BaseException:
        traceback.print_exc()
        outcome = "failed"
    return {"code": 0 if outcome == "passed" else 1, "results": [outcome], "others": {}, "changed": []}


def main() -> None:
    request = json.loads(sys.stdin.readline())
    nonce = request.pop("nonce")
    channel = os.dup(1)
    os.dup2(2, 1)  # what tests print is the log
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    sys.path[:] = [
        entry for entry in sys.path if entry not in ("", os.getcwd(), os.path.dirname(os.path.abspath(__file__)))
    ]
    owner = os.getpid()
    report = run_script(request) if request["script"] else run_tests(request)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.getpid() == owner:
        report["nonce"] = nonce
        with os.fdopen(channel, "wb") as file:
            file.write(b"\n" + json.dumps(report).encode() + b"\n")


if __name__ == "__main__":
    main()
