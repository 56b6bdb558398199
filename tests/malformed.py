"""Generates bodies that no client would send: broken bytes, wrong types in any place, cycles of nesting, fields gone."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import random

ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 10**18, 1e308, "", "x", "\x00", "\ufffe", "<|im_end|>", "é" * 50, [], {}, [None], [[]], [{}],
    {"a": 1}, {"type": 3}, {"type": "text"}, {"type": "tool_use"}, {"type": "tool_result"}, {"type": "image", "source": {}},
    {"type": "function_call"}, {"type": "custom_tool_call"}, {"type": "reasoning"}, {"type": "message"}, {"role": "assistant"},
    {"role": "tool"}, {"role": "user", "content": [{"type": "text", "text": 3}]}, {"type": "namespace", "name": "n", "tools": 3},
]  # fmt: skip


def nested(depth: int, kind: str = "list") -> Any:
    """A value of that depth."""
    value: Any = 0
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


def body(rng: random.Random, good: dict[str, Any]) -> bytes:
    """One malformed body, made from a good one; some of them are good by chance."""
    kind = rng.randrange(10)
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    raw = orjson.dumps(good)
    if kind == 1:  # cut off
        return raw[: rng.randrange(len(raw))]
    if kind == 2:  # bytes overwritten
        broken = bytearray(raw)
        for _ in range(rng.randrange(1, 6)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        return bytes(broken)
    if kind == 3:  # invalid UTF-8 and lone surrogates in a string
        return raw.replace(
            b"Fix", rng.choice([b"\xff\xfe", b"\\ud800", b"\\udc00\\ud800", b"\xed\xa0\x80", b"\\u0000"])
        )
    changed = copy.deepcopy(good)
    for _ in range(rng.randrange(1, 4)):
        _mutate(rng, changed)
    return json.dumps(changed).encode()  # orjson would refuse to nest as deep


def _mutate(rng: random.Random, value: Any) -> None:
    """Replace, remove, double or deepen something at a random place."""
    places: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            places += [(node, key) for key in node]
            stack += node.values()
        elif isinstance(node, list):
            places += [(node, index) for index in range(len(node))]
            stack += node
    if not places:
        return
    node, key = rng.choice(places)
    action = rng.randrange(5)
    if action == 0 and isinstance(node, dict):
        del node[key]
    elif action == 1 and isinstance(node, list):
        node.insert(key, copy.deepcopy(node[key]))
    elif action == 2:
        node[key] = nested(rng.choice([10, 80, 200]), rng.choice(["list", "dict"]))
    elif action == 3:
        node[key] = [copy.deepcopy(node[key])]
    else:
        node[key] = copy.deepcopy(rng.choice(ODD))
