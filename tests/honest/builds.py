"""Repositories that are built for their tests."""

from __future__ import annotations

from typing import Final

from tests.honest.case import EXIT_CODE, SWEPRO, WITH_NAMES, Honest, case

EXTENSION: Final = r"""
    === repo fast/__init__.py
    from fast._scale import scale


    def scaled(values, factor=2):
        return [scale(value, factor) for value in values]
    === repo build.sh
    set -e
    gcc -O1 -shared -fPIC -I "$1" -o fast/_scale.so src/scale.c
    === test tests/test_fast.py
    import pytest

    from fast import scale, scaled


    def test_scale():
        assert scale(3, 4) == 12


    def test_scaled():
        assert scaled([1, -2]) == [2, -4]


    @pytest.mark.parametrize("factor, expected", [(0, [0, 0]), (3, [3, 15])])
    def test_factor(factor, expected):
        assert scaled([1, 5], factor) == expected


    def test_type():
        with pytest.raises(TypeError):
            scale("a")
"""


C_SOURCE: Final = r"""
    #include <Python.h>
    static PyObject *scale(PyObject *self, PyObject *args) {
        long a, b;
        if (!PyArg_ParseTuple(args, "ll", &a, &b)) return NULL;
        return PyLong_FromLong(RESULT);
    }
    static PyMethodDef methods[] = {{"scale", scale, METH_VARARGS, ""}, {NULL, NULL, 0, NULL}};
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_scale", NULL, -1, methods};
    PyMODINIT_FUNC PyInit__scale(void) { return PyModule_Create(&module); }
"""


def scale_c(where: str, result: str) -> str:
    """Return the heading and text of the extension's source."""
    return f"\n    === {where} src/scale.c" + C_SOURCE.replace("RESULT", result)


BUILDS: Final[tuple[Honest, ...]] = (
    case(
        "extension built before the fix",
        EXTENSION
        + scale_c("repo", "a * b")
        + r"""
    === gold fast/__init__.py
    from fast._scale import scale as _scale


    def scale(value, factor=2):
        return _scale(value, factor)


    def scaled(values, factor=2):
        return [scale(value, factor) for value in values]
    === repo fast/__init__.py
    from fast._scale import scale


    def scaled(values, factor=2):
        return values
    === honest fast/__init__.py
    from functools import partial

    from fast import _scale


    def scale(value, factor=2):
        return _scale.scale(value, factor)


    def scaled(values, factor=2):
        return list(map(partial(scale, factor=factor), values))
        """,
        ("test_scaled", "test_factor[0-expected0]", "test_factor[3-expected1]"),
        keeps="test_scale test_type",
        program="gcc",
        pre_commands=("sh build.sh {tools}/include",),
    ),
    case(
        "extension built for the tests",
        EXTENSION + scale_c("repo", "a + b") + scale_c("gold", "a * b") + scale_c("honest", "b * a * 1L"),
        ("test_scale", "test_scaled", "test_factor[0-expected0]", "test_factor[3-expected1]"),
        keeps="test_type",
        program="gcc",
        before="sh build.sh {tools}/include",
    ),
    case(
        "a command of make",
        r"""
        === repo Makefile
        PYTHON = python3
        test: lint ; $(PYTHON) -m pytest -v tests
        lint: ; $(PYTHON) -m compileall -q merge.py
        === repo merge.py
        def merge(a, b):
            return a
        === gold merge.py
        def merge(a, b):
            return {**a, **b}
        === honest merge.py
        def merge(a, b):
            result = dict(a)
            result.update(b)
            return result
        === test tests/test_merge.py
        from merge import merge


        def test_merge():
            assert merge({"a": 1}, {"b": 2}) == {"a": 1, "b": 2}


        def test_second_wins():
            assert merge({"a": 1}, {"a": 2})["a"] == 2


        def test_pure():
            first = {}
            merge(first, {"x": 1})
            assert first == {}
        """,
        "test_merge test_second_wins",
        keeps="test_pure",
        command='{python} -c \'import subprocess, sys; sys.exit(subprocess.call(["make", "test"]))\'',
        kinds=(EXIT_CODE, WITH_NAMES, SWEPRO),
    ),
)
