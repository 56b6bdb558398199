"""Which turn a request continues, what its prompt is, and why it forks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rl_agent.errors import LawError
from rl_agent.tokens.fork import ChainKey, ForkReason
from rl_agent.tokens.graph import SessionGraph
from rl_agent.tokens.ledger import ExclusionReason
from rl_agent.tokens.messages import Message, ParsedReply, Role, ToolCall
from rl_agent.tokens.segment import NOT_SAMPLED, SegmentKind
from tests.scripted import BASH, call, conversation, generation, result, system, user

if TYPE_CHECKING:
    from rl_agent.tokens.graph import Prompt
    from rl_agent.tokens.template_renderer import TemplateRenderer

MAIN = ChainKey()
COMPACT = ChainKey(kind=SegmentKind.COMPACTION)


class Client:
    """A graph with a client in front of it that keeps its own history."""

    def __init__(self, renderer: TemplateRenderer) -> None:
        self.renderer = renderer
        self.graph = SessionGraph(renderer)

    def say(
        self, messages: list[Message], text: str, key: ChainKey = MAIN, tools: tuple = (BASH,)
    ) -> tuple[Message, Prompt]:
        """Ask with `messages`; the policy says `text`. Returns the reply as a client would echo it."""
        prompt = self.graph.continue_or_fork(key, conversation(*messages, tools=tools))
        sampled = generation(self.renderer, text)
        parsed = self.renderer.parse(sampled.tokens, sampled.finish_reason, prompt_tokens=prompt.new_tokens)
        calls = tuple(
            ToolCall(id=f"toolu_{prompt.turn_id}_{i}", name=c.name, arguments=c.arguments, raw=c.raw)
            for i, c in enumerate(parsed.tool_calls)
        )
        reply = type(parsed)(content=parsed.content, reasoning=parsed.reasoning, tool_calls=calls)
        self.graph.commit(prompt, sampled, reply)
        self.graph.delivered(prompt.turn_id)
        return reply.as_message(), prompt


@pytest.fixture
def client(renderer: TemplateRenderer) -> Client:
    return Client(renderer)


def head() -> list[Message]:
    return [system("You fix bugs."), user("Fix calc.py")]


def test_a_plain_run_is_one_segment_that_trains_every_sampled_token(client: Client) -> None:
    history = head()
    for text in (call("cat calc.py"), call("sed"), "Done.<|im_end|>"):
        reply, _ = client.say(history, text)
        history += [reply, *(result(c.id, "out") for c in reply.tool_calls)]
    segments, ledger = client.graph.export()
    assert len(segments) == 1
    assert ledger.trained == ledger.sampled
    assert not client.graph.forks
    segment = segments[0]
    assert segment.kind is SegmentKind.MAIN
    shown = client.renderer.text(segment.tokens[segment.loss_mask])
    assert shown == call("cat calc.py") + call("sed") + "Done.<|im_end|>"
    assert (segment.rollout_logprobs[segment.loss_mask] < 0).all()
    assert (segment.weight_versions[segment.loss_mask] == 1).all()
    assert (segment.weight_versions[~segment.loss_mask] == NOT_SAMPLED).all()


@pytest.mark.parametrize(
    "echo",
    [
        lambda m: Message(role=m.role, content=m.content + "\n ", tool_calls=m.tool_calls),
        lambda m: Message(role=m.role, content="", tool_calls=m.tool_calls),
        lambda m: Message(
            role=m.role,
            content=m.content,
            tool_calls=tuple(ToolCall(id=c.id, name=c.name, arguments={"x": 1}, raw='{"x":1}') for c in m.tool_calls),
        ),
        lambda m: Message(role=m.role, content="other words", tool_calls=m.tool_calls[:1]),
    ],
    ids=["white space", "text dropped", "arguments rewritten", "text rewritten"],
)
def test_an_echo_stays_on_its_chain_however_it_is_rewritten(client: Client, echo: object) -> None:
    history = head()
    reply, first = client.say(history, "<think>hm</think>I look." + call("ls"))
    _, second = client.say([*history, echo(reply), result(reply.tool_calls[0].id, "out")], "Done.<|im_end|>")  # type: ignore[operator]
    assert second.fork is None
    assert second.parent_id == first.turn_id
    recorded = np.concatenate([first.tokens, client.graph.turns[0].generation.tokens])
    assert second.tokens[: len(recorded)].tolist() == recorded.tolist()


def test_a_text_reply_is_recognised_by_its_words_and_a_signed_one_by_its_turn(client: Client) -> None:
    history = head()
    _, first = client.say(history, "Hello.<|im_end|>")
    echo = Message(role=Role.ASSISTANT, content=" Hello.")
    _, second = client.say([*history, echo, user("go on")], "Again.<|im_end|>")
    assert second.parent_id == first.turn_id
    signed = Message(role=Role.ASSISTANT, content="rewritten", turn_id=second.turn_id)
    _, third = client.say([*history, echo, user("go on"), signed, user("more")], "End.<|im_end|>")
    assert third.parent_id == second.turn_id


def test_results_are_shown_in_the_order_of_the_calls(client: Client) -> None:
    history = head()
    reply, _ = client.say(history, (call("a") + call("b")).replace("<|im_end|>", "", 1))
    a, b = (c.id for c in reply.tool_calls)
    _, prompt = client.say([*history, reply, result(b, "second"), result(a, "first"), user("note")], "Done.<|im_end|>")
    text = client.renderer.text(prompt.new_tokens)
    assert text.index("first") < text.index("second") < text.index("note")


def test_a_sub_agent_is_its_own_segment_and_the_main_chain_goes_on(client: Client) -> None:
    history = head()
    reply, first = client.say(history, call("spawn"))
    child = ChainKey(agent="a1", kind=SegmentKind.SUBAGENT)
    sub = [system("You search."), user("find it")]
    sub_reply, _ = client.say(sub, call("grep"), child)
    client.say([*sub, sub_reply, result(sub_reply.tool_calls[0].id, "hit")], "Found.<|im_end|>", child)
    _, last = client.say([*history, reply, result(reply.tool_calls[0].id, "Found.")], "Done.<|im_end|>")
    assert last.parent_id == first.turn_id
    segments, ledger = client.graph.export()
    assert [s.kind for s in segments] == [SegmentKind.MAIN, SegmentKind.SUBAGENT]
    assert ledger.trained == ledger.sampled
    assert not client.graph.forks


def test_a_sub_agent_whose_client_does_not_say_so_is_still_its_own_segment(client: Client) -> None:
    history = head()
    reply, first = client.say(history, call("spawn"))
    sub = [system("You search."), user("find it")]
    sub_reply, sub_prompt = client.say(sub, call("grep"), tools=())
    client.say([*sub, sub_reply, result(sub_reply.tool_calls[0].id, "hit")], "Found.<|im_end|>", tools=())
    _, last = client.say([*history, reply, result(reply.tool_calls[0].id, "Found.")], "Done.<|im_end|>")
    assert sub_prompt.fork is ForkReason.NEW_CONVERSATION
    assert last.parent_id == first.turn_id
    segments, ledger = client.graph.export()
    assert [s.kind for s in segments] == [SegmentKind.MAIN, SegmentKind.SUBAGENT]
    assert ledger.trained == ledger.sampled


def test_a_compaction_shares_the_recorded_prefix_and_the_summary_starts_anew(client: Client) -> None:
    history = head()
    one, first = client.say(history, call("a"))
    history += [one, result(one.tool_calls[0].id, "ra")]
    two, second = client.say(history, call("b"))
    _, summing = client.say([*history, user("CRITICAL: sum up")], "<summary>x</summary><|im_end|>", COMPACT)
    assert summing.parent_id == first.turn_id
    assert summing.kind is SegmentKind.COMPACTION
    after = [system("You fix bugs."), user("continued: x"), two, result(two.tool_calls[0].id, "rb")]
    _, third = client.say(after, "Done.<|im_end|>")
    assert third.parent_id is None
    assert third.fork is ForkReason.COMPACTED
    segments, ledger = client.graph.export()
    assert ledger.trained == ledger.sampled
    assert sorted(s.kind for s in segments) == [SegmentKind.COMPACTION, SegmentKind.MAIN, SegmentKind.MAIN]
    trained = "".join(client.renderer.text(s.tokens[s.loss_mask]) for s in segments)
    assert trained.count('"command": "a"') == 1
    assert trained.count('"command": "b"') == 1
    assert second.turn_id not in {t for t, k in client.graph.kinds().items() if k is SegmentKind.COMPACTION}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: ([m[0], user("Fix other.py"), *m[2:]], (BASH,)), ForkReason.COMPACTED),
        (lambda m: ([system("Another."), *m[1:]], (BASH,)), ForkReason.SYSTEM_CHANGED),
        (lambda m: (m, ()), ForkReason.TOOLS_CHANGED),
        (lambda m: ([*m[:2], user("inserted"), *m[2:]], (BASH,)), ForkReason.HISTORY_CHANGED),
        (
            lambda m: ([*m, Message(role=Role.ASSISTANT, content="I did not"), user("x")], (BASH,)),
            ForkReason.FOREIGN_ASSISTANT,
        ),
        (lambda m: (m[:3], (BASH,)), ForkReason.NOTHING_NEW),
    ],
    ids=["first message", "system", "tools", "inserted", "foreign assistant", "nothing new"],
)
def test_a_changed_history_forks_for_its_reason_and_nothing_is_lost(
    client: Client, change: object, reason: ForkReason
) -> None:
    history = head()
    reply, _ = client.say(history, call("a"))
    messages, tools = change([*history, reply, result(reply.tool_calls[0].id, "ra")])  # type: ignore[operator]
    _, prompt = client.say(messages, "Done.<|im_end|>", tools=tools)
    assert prompt.fork is reason
    assert client.graph.forks[reason] == 1
    assert prompt.parent_id is None
    segments, ledger = client.graph.export()
    assert len(segments) == 2
    assert ledger.trained == ledger.sampled


def test_in_a_fork_the_policys_own_words_are_shown_not_the_clients_rewriting(client: Client) -> None:
    history = head()
    reply, _ = client.say(history, call("a"))
    rewritten = ToolCall(id=reply.tool_calls[0].id, name="Bash", arguments={"zzz": 1}, raw='{"zzz":1}')
    echo = Message(role=Role.ASSISTANT, content="", tool_calls=(rewritten,))
    _, prompt = client.say([history[0], user("new"), echo, result(rewritten.id, "r")], "Done.<|im_end|>")
    assert '"command": "a"' in client.renderer.text(prompt.tokens)
    assert "zzz" not in client.renderer.text(prompt.tokens)


def test_a_reply_that_the_client_threw_away_is_excluded(client: Client) -> None:
    history = head()
    one, _ = client.say(history, call("a"))
    history += [one, result(one.tool_calls[0].id, "ra")]
    _, dropped = client.say(history, "Thrown away.<|im_end|>")
    client.say([*history, user("your previous response had no visible output")], "Done.<|im_end|>")
    segments, ledger = client.graph.export()
    assert ledger.excluded == {ExclusionReason.SUPERSEDED: len(client.graph.turns[1].generation.tokens)}
    assert len(segments) == 1
    assert "Thrown away" not in client.renderer.text(segments[0].tokens)
    assert dropped.turn_id == client.graph.turns[1].turn_id


def test_a_branch_keeps_the_shared_tokens_and_trains_them_once(client: Client) -> None:
    history = head()
    one, _ = client.say(history, call("a"))
    answer = result(one.tool_calls[0].id, "ra")
    client.say([*history, one, answer, user("this")], "This.<|im_end|>")
    _, branch = client.say([*history, one, answer, user("that")], "That.<|im_end|>")
    assert branch.fork is ForkReason.BRANCHED
    segments, ledger = client.graph.export()
    assert len(segments) == 2
    assert ledger.trained == ledger.sampled
    trained = "".join(client.renderer.text(s.tokens[s.loss_mask]) for s in segments)
    assert trained.count('"command": "a"') == 1


def test_an_undelivered_reply_is_excluded_unless_the_client_had_it_after_all(client: Client) -> None:
    history = head()
    prompt = client.graph.continue_or_fork(MAIN, conversation(*history))
    sampled = generation(client.renderer, "Hi.<|im_end|>")
    parsed = client.renderer.parse(sampled.tokens, sampled.finish_reason, prompt_tokens=prompt.new_tokens)
    client.graph.commit(prompt, sampled, parsed)
    segments, ledger = client.graph.export()
    assert segments == []
    assert ledger.excluded == {ExclusionReason.UNDELIVERED: len(sampled.tokens)}
    client.say([*history, parsed.as_message(), user("go on")], "End.<|im_end|>")
    ledger = client.graph.export()[1]
    assert ledger.trained == ledger.sampled


def test_a_prompt_is_answered_at_most_once(client: Client) -> None:
    prompt = client.graph.continue_or_fork(MAIN, conversation(*head()))
    sampled = generation(client.renderer, "Hi.<|im_end|>")
    parsed = client.renderer.parse(sampled.tokens, sampled.finish_reason, prompt_tokens=prompt.new_tokens)
    client.graph.commit(prompt, sampled, parsed)
    with pytest.raises(LawError, match="was committed twice"):
        client.graph.commit(prompt, sampled, parsed)


def test_a_commit_that_fails_leaves_nothing_behind(client: Client) -> None:
    prompt = client.graph.continue_or_fork(MAIN, conversation(*head()))
    sampled = generation(client.renderer, call("ls"))
    unnamed = ToolCall(id="c", name=5, arguments={}, raw="{}")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        client.graph.commit(prompt, sampled, ParsedReply(content="", tool_calls=(unnamed,)))
    assert not client.graph.holds(prompt.turn_id)
    client.graph.lose(prompt, len(sampled.tokens), ExclusionReason.UNUSABLE)
    segments, ledger = client.graph.export()
    assert (segments, ledger.excluded) == ([], {ExclusionReason.UNUSABLE: len(sampled.tokens)})


@pytest.mark.parametrize("said", ["<think>hm</think>I look.", "<think>hm</think>"])
def test_a_raw_reply_is_recognised_with_its_reasoning_told_apart(client: Client, said: str) -> None:
    history = head()
    prompt = client.graph.continue_or_fork(MAIN, conversation(*history))
    sampled = generation(client.renderer, said + "<|im_end|>")
    client.graph.commit(prompt, sampled, ParsedReply(content=said, ill_formed=True))
    echo = Message(role=Role.ASSISTANT, content=said.removeprefix("<think>hm</think>"), reasoning="hm")
    _, after = client.say([*history, echo, user("No tool call found")], "Done.<|im_end|>")
    assert (after.parent_id, after.fork) == (prompt.turn_id, None)
    assert len(client.graph.export()[0]) == 1
