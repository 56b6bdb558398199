"""Everything that users of systems like this set or expect has a key of a schema, or a test, that exists."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.config.test_composition import composed

ROOT = Path(__file__).parents[3]
TABLES: dict[str, list[dict[str, Any]]] = yaml.safe_load((ROOT / "tests" / "data" / "options.yaml").read_text())
ROWS = [(table, row) for table, rows in TABLES.items() for row in rows]


def field_of(node: Any, key: str) -> tuple[type, str]:
    """The dataclass and the field that a dotted key names. Raises AttributeError for a key that no schema has."""
    *path, name = key.split(".")
    for part in path:
        node = getattr(node, part)
    getattr(node, name)
    return type(node), name


def functions_of(file: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, kinds)}


@pytest.mark.parametrize(("table", "row"), ROWS, ids=[row["row"][:60] for _, row in ROWS])
def test_a_row_is_met_by_a_key_or_a_test(table: str, row: dict[str, Any]) -> None:
    keys, tests = row.get("keys", []), row.get("tests", [])
    assert keys or tests, f"nothing meets: {row['row']}"
    assert tests or table == "options", "a behaviour or a rule needs a test"
    if keys:
        config = composed("experiment=none", *row.get("with", []))
        for key in keys:
            kind, name = field_of(config, key)
            assert name in kind.__dataclass_fields__, key  # typed, by a schema
    for test in tests:
        file, _, name = test.partition("::")
        assert name in functions_of(ROOT / file), test


def test_every_row_of_the_tables_is_there() -> None:
    assert {table: len(rows) for table, rows in TABLES.items()} == {"options": 22, "behaviours": 12, "rules": 11}


def test_a_key_or_a_test_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(AttributeError):
        field_of(composed(), "harness.does_not_exist")
    assert "test_of_nothing" not in functions_of(Path(__file__))
