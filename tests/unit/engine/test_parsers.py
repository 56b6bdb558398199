"""vLLM's parsers by name: what they read is whole, or the reply is reported as ill-formed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.engine.parsers import VllmParser
from rl_agent.errors import ConfigError
from rl_agent.tokens.build import build_renderer
from rl_agent.tokens.template_renderer import TemplateRenderer
from rl_agent.tokens.tokenizer import load_tokenizer
from rl_agent.tokens.turn import FinishReason
from tests.scripted import BASH, conversation, encode, save_tokenizer, user

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.tokens.messages import ParsedReply

XML = """{{- '<tool_call>\\n<function=' + c.function.name + '>\\n' }}
{%- for k, v in c.function.arguments.items() %}
{{- '<parameter=' + k + '>\\n' + (v if v is string else v | tojson) + '\\n</parameter>\\n' }}
{%- endfor %}{{- '</function>\\n</tool_call>' }}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    template = folder / "chat_template.jinja"
    text = template.read_text()
    start, end = text.index("{{- '<tool_call>"), text.index("{{- '}</tool_call>' }}") + len("{{- '}</tool_call>' }}")
    template.write_text(text[:start] + XML + text[end:])
    return folder


@pytest.fixture(scope="module")
def renderer(folder: Path) -> TemplateRenderer:
    parser = VllmParser(folder, tool_parser="qwen3_xml", reasoning_parser=None)
    built = build_renderer(folder, reply_parser=parser)
    assert isinstance(built, TemplateRenderer)
    return built


def read(renderer: TemplateRenderer, said: str) -> ParsedReply:
    prompt = renderer.render(conversation(user("u")))
    tokens = encode(renderer, said + "<|im_end|>")
    return renderer.parse(tokens, FinishReason.STOP, prompt_tokens=prompt, tools=(BASH,))


def xml(command: str, timeout: str = "5") -> str:
    parameters = f"<parameter=command>\n{command}\n</parameter>\n<parameter=timeout>\n{timeout}\n</parameter>\n"
    return f"<tool_call>\n<function=Bash>\n{parameters}</function>\n</tool_call>"


def test_a_call_is_read_with_the_types_of_its_schema(renderer: TemplateRenderer) -> None:
    parsed = read(renderer, "<think>hm</think>I look." + xml('echo "5" > a.txt'))
    (call,) = parsed.tool_calls
    assert (parsed.reasoning, parsed.content, parsed.ill_formed) == ("hm", "I look.", False)
    assert (call.name, dict(call.arguments or {})) == ("Bash", {"command": 'echo "5" > a.txt', "timeout": 5})


@pytest.mark.parametrize(
    "command", ["echo '</parameter>' more words", "echo '</function>' x", "cat <<E\n</tool_call>\nE"]
)
def test_a_value_that_holds_its_own_closing_tag_is_read_whole_or_not_at_all(
    renderer: TemplateRenderer, command: str
) -> None:
    parsed = read(renderer, xml(command))
    if parsed.tool_calls:
        assert dict(parsed.tool_calls[0].arguments or {})["command"] == command
    else:
        assert parsed.ill_formed
        assert command in parsed.content


def test_a_template_whose_calls_the_parser_cannot_read_is_a_config_error(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"Set model\.tool_parser"):
        build_renderer(folder)


def test_an_unknown_parser_is_a_config_error_with_near_names(folder: Path) -> None:
    with pytest.raises(ConfigError, match="qwen3_xml"):
        VllmParser(folder, tool_parser="qwen3_xm", reasoning_parser=None)
    with pytest.raises(ConfigError, match="deepseek_r1"):
        VllmParser(folder, tool_parser=None, reasoning_parser="deepseek_r")


def test_a_reasoning_parser_by_name_splits_what_the_prompt_opened(folder: Path) -> None:
    parser = VllmParser(folder, tool_parser="qwen3_xml", reasoning_parser="deepseek_r1")
    parsed = parser.parse("why</think>so" + xml("ls"), truncated=False, in_reasoning=True, tools=(BASH,))
    assert (parsed.reasoning, parsed.content, len(parsed.tool_calls)) == ("why", "so", 1)


def test_the_vocabulary_is_built_once_for_all_replies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(load_tokenizer(folder))
    honest, built = kind.get_vocab, []

    def counted(self: Any) -> dict[str, int]:
        built.append(1)
        return honest(self)

    monkeypatch.setattr(kind, "get_vocab", counted)
    parser = VllmParser(folder, tool_parser="qwen3_xml", reasoning_parser="deepseek_r1")
    for _ in range(10):
        parser.parse("why</think>so" + xml("ls"), truncated=False, in_reasoning=True, tools=(BASH,))
    assert len(built) == 1


BROKEN = ["", "<tool_call>", "<tool_call>\n<function=", "</think></think>", xml("x")[:-12], xml("x")[:40], "\x00" * 50]


@pytest.mark.parametrize("said", BROKEN)
def test_a_broken_reply_is_no_call(renderer: TemplateRenderer, said: str) -> None:
    assert not read(renderer, said).tool_calls
