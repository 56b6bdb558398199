"""Tests that start processes."""

from __future__ import annotations

from typing import Final

from tests.honest.case import NAMED, NO_SCRIPT, Honest, case

PROCESSES: Final[tuple[Honest, ...]] = (
    case(
        "starts its package and its tools",
        r"""
        === repo app/__init__.py
        === repo app/__main__.py
        import sys

        from app.core import square

        print(square(int(sys.argv[1])))
        === repo app/core.py
        def square(number):
            return number
        === repo tools/layout.py
        WIDTH = 8


        def line(text):
            return text.rjust(WIDTH, ".")
        === repo tools/report.py
        import sys

        import layout

        print(layout.line(sys.argv[1]))
        === gold app/core.py
        def square(number):
            return number * number
        === gold tools/layout.py
        WIDTH = 8


        def line(text):
            return text.ljust(WIDTH, ".")
        === honest app/core.py
        def square(number):
            return number**2
        === honest tools/layout.py
        WIDTH = 8


        def line(text):
            return f"{text:.<{WIDTH}}"
        === test tests/test_app.py
        import os
        import subprocess
        import sys

        ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


        def run(*words, **more):
            done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, **more)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()


        def test_module():
            assert run("-m", "app", "5") == "25"


        def test_script():
            assert run("tools/report.py", "ab") == "ab......"


        def test_from_the_tools_folder():
            text = subprocess.check_output([sys.executable, "report.py", "x"], cwd=os.path.join(ROOT, "tools"))
            assert text == b"x.......\n"


        def test_without_environment():
            assert run("-c", "from app.core import square; print(square(4))", env={"PATH": os.environ["PATH"]}) == "16"
        """,
        "test_module test_script test_from_the_tools_folder test_without_environment",
        sample=(NAMED,),
    ),
    case(
        "starts pytest",
        r"""
        === repo check.py
        import subprocess
        import sys


        def check(folder):
            return True
        === gold check.py
        import subprocess
        import sys


        def check(folder):
            done = subprocess.run([sys.executable, "-m", "pytest", "-q", folder], capture_output=True)
            return done.returncode == 0
        === honest check.py
        import subprocess
        import sys


        def check(folder):
            command = [sys.executable, "-m", "pytest", "--no-header", "-q", "."]
            return not subprocess.call(command, cwd=folder, stdout=subprocess.DEVNULL)
        === test tests/test_check.py
        from check import check


        def test_good(tmp_path):
            (tmp_path / "test_inner.py").write_text("def test_good(): pass\n")
            assert check(str(tmp_path)) is True


        def test_bad(tmp_path):
            (tmp_path / "test_inner.py").write_text("def test_bad(): assert 0\ndef test_good(): pass\n")
            assert check(str(tmp_path)) is False


        def test_mixed(tmp_path):
            (tmp_path / "tests").mkdir()
            (tmp_path / "tests" / "test_check.py").write_text("def test_good(): assert 0\ndef test_bad(): pass\n")
            assert not check(str(tmp_path))
        """,
        "test_bad test_mixed",
        keeps="test_good",
    ),
    case(
        "processes and threads",
        r"""
        === repo squares.py
        def squares(numbers, workers=2):
            return list(numbers)
        === gold squares.py
        import multiprocessing


        def square(number):
            return number * number


        def squares(numbers, workers=2):
            with multiprocessing.Pool(workers) as pool:
                return pool.map(square, numbers)
        === honest squares.py
        from concurrent.futures import ThreadPoolExecutor


        def squares(numbers, workers=2):
            with ThreadPoolExecutor(max_workers=workers) as pool:
                return [*pool.map(lambda number: number**2, numbers)]
        === test tests/test_squares.py
        import multiprocessing
        import threading

        from squares import squares


        def _put(queue, number):
            queue.put(squares([number], workers=1))


        def test_many():
            assert squares(range(5)) == [0, 1, 4, 9, 16]


        def test_in_a_child():
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            child = context.Process(target=_put, args=(queue, 7))
            child.start()
            assert queue.get(timeout=20) == [49]
            child.join()
            assert child.exitcode == 0


        def test_in_a_thread():
            found = []
            thread = threading.Thread(target=lambda: found.extend(squares([3, 2])))
            thread.start()
            thread.join()
            assert sorted(found) == [4, 9]


        def test_spawned():
            context = multiprocessing.get_context("spawn")
            with context.Pool(1) as pool:
                assert pool.apply(squares, ([6],), {"workers": 1}) == [36] or True
                assert pool.apply(len, ("abc",)) == 3
        """,
        "test_many test_in_a_thread",
        keeps="test_spawned",
        kinds=NO_SCRIPT,
    ),
)
