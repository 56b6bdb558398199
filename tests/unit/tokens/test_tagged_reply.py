"""Reading replies: exactly, or reported as ill-formed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_agent.tokens.tagged_reply import parse_tagged
from tests.cost import growth

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    arguments=st.dictionaries(st.text(), JSON, max_size=4), ascii_only=st.booleans(), indent=st.sampled_from([None, 2])
)
def test_any_arguments_are_read_exactly_and_kept_raw(arguments: dict, ascii_only: bool, indent: int | None) -> None:
    raw = json.dumps(arguments, ensure_ascii=ascii_only, indent=indent)
    parsed = parse_tagged('Ok.<tool_call>\n{"name": "f", "arguments": ' + raw + "}\n</tool_call>", truncated=False)
    assert not parsed.ill_formed
    assert parsed.content == "Ok."
    assert [(c.name, c.arguments, c.raw) for c in parsed.tool_calls] == [("f", arguments, raw)]


def test_an_argument_may_hold_the_closing_tag_of_its_own_call() -> None:
    parsed = parse_tagged(
        '<tool_call>{"name": "W", "arguments": {"text": "a </tool_call> b"}}</tool_call>tail', truncated=False
    )
    assert parsed.tool_calls[0].arguments == {"text": "a </tool_call> b"}
    assert parsed.content == "tail"


def test_parallel_calls_keep_their_order_and_a_broken_one_in_between_is_reported() -> None:
    good = '<tool_call>{"name": "%s", "arguments": {}}</tool_call>'
    broken = '<tool_call>{"name": oops}</tool_call>'
    parsed = parse_tagged(good % "a" + broken + good % "b", truncated=False)
    assert [c.name for c in parsed.tool_calls] == ["a", "b"]
    assert parsed.ill_formed
    assert parsed.content == broken


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "f", "arguments": {"a": 1}',
        '<tool_call>{"name": "f", "arguments": {"a": "cut',
        '<tool_call>{"name": "f", "arguments": {"a": 1}}',
        '<tool_call>{"name": "f"}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>',
        '<tool_call>{"name": "f", "name": "g", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {}} more</tool_call>',
        "<tool_call></tool_call>",
        "<tool_call>" + "[" * 5000,
        '<tool_call>{"name": "f", "arguments": ' + '{"a":' * 5000,
    ],
)
def test_a_call_that_cannot_be_read_whole_is_ill_formed_and_its_text_stays(text: str) -> None:
    parsed = parse_tagged(text, truncated=False)
    assert parsed.ill_formed
    assert parsed.tool_calls == ()
    assert parsed.content == text


@pytest.mark.parametrize(
    ("text", "opened", "reasoning", "content", "ill_formed"),
    [
        ("<think>why</think>so", False, "why", "so", False),
        ("\n<think>\nwhy\n</think>\n\nso", False, "why", "so", False),
        ("why</think>so", True, "why", "so", False),
        ("<think>why", False, "why", "", True),
        ("a <think>b</think>", False, None, "a <think>b</think>", False),
        ("<think></think>so", False, "", "so", False),
    ],
)
def test_reasoning_is_split_off_and_an_unclosed_one_reported(
    text: str, opened: bool, reasoning: str | None, content: str, ill_formed: bool
) -> None:
    parsed = parse_tagged(text, truncated=False, in_reasoning=opened)
    assert (parsed.reasoning, parsed.content, parsed.ill_formed) == (reasoning, content, ill_formed)


def test_a_cut_reply_is_truncated_and_a_cut_call_has_no_arguments_at_all() -> None:
    parsed = parse_tagged('text<tool_call>{"name": "f", "arguments": {"a"', truncated=True)
    assert parsed.truncated
    assert parsed.ill_formed
    assert parsed.tool_calls == ()


@given(st.text(alphabet='<>/tool_cal{}":,think nmearguts', max_size=200))
def test_no_text_makes_the_parser_raise(text: str) -> None:
    parse_tagged(text, truncated=False)


@pytest.mark.parametrize(
    ("part", "end"),
    [
        ("<tool_call>", ""),
        ("<tool_call>", "</tool_call>"),
        ("<tool_call>{", ""),
        ('<tool_call>{"</tool_call>\n', ""),
        ("<tool_call>{}</tool_call>", ""),
        ('<tool_call>{"name": "f", "arguments": {}}</tool_call>', "<tool_call>"),
    ],
)
def test_reading_takes_time_as_the_reply_is_long(part: str, end: str) -> None:
    assert growth(lambda n: parse_tagged(part * n + end, truncated=True), 4_000) < 9


def test_behind_many_unreadable_calls_the_rest_is_text() -> None:
    good = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    text = good + "<tool_call>{}</tool_call>" * 150 + good
    parsed = parse_tagged(text, truncated=False)
    assert (len(parsed.tool_calls), parsed.ill_formed) == (1, True)
    assert parsed.content == text.removeprefix(good)
