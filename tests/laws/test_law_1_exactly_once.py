"""Law 1: for each session, every sampled token is in one of: trained, or excluded with a named reason.

Law 2: a chain's next prompt is its recorded tokens plus the rendered new messages.
Law 7 (its half that lives in tokens): requests that are the same have the same fingerprint, others do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_agent.errors import LawError
from rl_agent.tokens import graph as graph_module
from rl_agent.tokens.fork import ChainKey, ForkReason
from rl_agent.tokens.graph import SessionGraph
from rl_agent.tokens.ledger import ExclusionReason, Ledger
from rl_agent.tokens.messages import Message, Role, ToolCall
from rl_agent.tokens.segment import SegmentKind
from rl_agent.tokens.template_renderer import TemplateRenderer
from tests.scripted import BASH, call, conversation, generation, result, save_tokenizer, system, user

if TYPE_CHECKING:
    from rl_agent.tokens.segment import Segment

WORDS = st.text(alphabet="ab \n<", max_size=8)


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> TemplateRenderer:
    return TemplateRenderer(save_tokenizer(tmp_path_factory.mktemp("tokenizer")))


class Run:
    """A random client: it goes on, rewrites its echoes, forks, compacts, spawns, drops replies."""

    def __init__(self, renderer: TemplateRenderer, data: st.DataObject) -> None:
        self.renderer = renderer
        self.data = data
        self.graph = SessionGraph(renderer)
        self.histories: dict[ChainKey, list[Message]] = {ChainKey(): [system("s"), user("u")]}
        self.sampled = 0
        self.lost = 0

    def step(self) -> None:
        action = self.data.draw(
            st.sampled_from(["go", "go", "go", "go", "spawn", "compact", "rewrite", "drop", "lose", "tools", "twice"])
        )
        key = self.data.draw(st.sampled_from(list(self.histories)))
        history = self.histories[key]
        if action == "spawn":
            agent = f"a{len(self.histories)}"
            child = ChainKey(agent=agent, kind=SegmentKind.SUBAGENT)
            self.histories[child] = [system(self.data.draw(WORDS) or "s"), user(self.data.draw(WORDS))]
            return
        if action == "compact":
            self.ask(ChainKey(agent=key.agent, kind=SegmentKind.COMPACTION), [*history, user("sum up")])
            self.histories[key] = [system("s"), user("summary " + self.data.draw(WORDS)), *history[-2:]]
            return
        if action == "rewrite":
            self.histories[key] = [history[0], user(self.data.draw(WORDS)), *history[2:]]
            history = self.histories[key]
        tools = () if action == "tools" else (BASH,)
        reply = self.ask(key, history, lose=action == "lose", tools=tools)
        if reply is None or action == "drop":
            self.histories[key] = [*history, user("again " + self.data.draw(WORDS))]
            return
        if action == "twice":
            self.ask(key, [*history, user("beside")])
        answers = [result(c.id, self.data.draw(WORDS)) for c in reply.tool_calls]
        self.histories[key] = [*history, self.echo(reply), *self.data.draw(st.permutations(answers))]
        if not answers or self.data.draw(st.booleans()):
            self.histories[key].append(user(self.data.draw(WORDS)))

    def echo(self, reply: Message) -> Message:
        content = self.data.draw(st.sampled_from([reply.content, reply.content + "\n"]))
        calls = tuple(ToolCall(id=c.id, name=c.name, arguments={}, raw="{}") for c in reply.tool_calls)
        return Message(role=Role.ASSISTANT, content=content, tool_calls=calls)

    def ask(
        self, key: ChainKey, history: list[Message], *, lose: bool = False, tools: tuple = (BASH,)
    ) -> Message | None:
        request = conversation(*history, tools=tools)
        located = self.graph.locate(key, request)
        assert located.fingerprint == self.graph.locate(key, request).fingerprint
        changed = conversation(*history, user("more"), tools=tools)
        assert located.fingerprint != self.graph.locate(key, changed).fingerprint
        prompt = self.graph.continue_or_fork(key, request, located)
        self.check_prompt(prompt, request)
        text = self.data.draw(
            st.sampled_from([call("a"), call("b"), "Text.<|im_end|>", "<think>t</think>" + call("c")])
        )
        sampled = generation(self.renderer, text, version=self.data.draw(st.integers(0, 3)))
        self.sampled += len(sampled.tokens)
        if lose:
            self.lost += len(sampled.tokens)
            self.graph.lose(prompt, len(sampled.tokens), ExclusionReason.CANCELLED)
            return None
        parsed = self.renderer.parse(sampled.tokens, sampled.finish_reason, prompt_tokens=prompt.new_tokens)
        calls = tuple(
            ToolCall(id=f"c_{prompt.turn_id}_{i}", name=c.name, arguments=c.arguments, raw=c.raw)
            for i, c in enumerate(parsed.tool_calls)
        )
        reply = type(parsed)(content=parsed.content, reasoning=parsed.reasoning, tool_calls=calls)
        self.graph.commit(prompt, sampled, reply)
        if self.data.draw(st.integers(0, 9)):
            self.graph.delivered(prompt.turn_id)
        return reply.as_message()

    def check_prompt(self, prompt: graph_module.Prompt, request: object) -> None:
        """Law 2: recorded tokens of the parent's path, then new ones; a root is a full render and a fork has a reason."""
        del request
        recorded: list[int] = []
        if prompt.parent_id is not None:
            recorded = self.graph._nodes[prompt.parent_id].path_tokens().tolist()
            assert prompt.fork in {None, ForkReason.BRANCHED}
        elif self.graph.turns and prompt.located.key.agent in self.graph._roots:
            assert prompt.fork is not None
        assert prompt.tokens.tolist() == recorded + prompt.new_tokens.tolist()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_every_sampled_token_trains_once_or_is_excluded_for_a_reason(
    renderer: TemplateRenderer, data: st.DataObject
) -> None:
    run = Run(renderer, data)
    for _ in range(data.draw(st.integers(1, 12))):
        run.step()
    segments, ledger = run.graph.export()
    trained = sum(s.trained for s in segments)
    assert run.sampled == ledger.sampled == trained + sum(ledger.excluded.values())
    assert ledger.trained == trained
    assert ledger.excluded.get(ExclusionReason.CANCELLED, 0) == run.lost
    assert _trained_tokens(segments) == _kept_tokens(run.graph, ledger)


def _trained_tokens(segments: list[Segment]) -> list[tuple[int, float]]:
    pairs = [
        (int(t), float(p))
        for s in segments
        for t, p in zip(s.tokens[s.loss_mask], s.rollout_logprobs[s.loss_mask], strict=True)
    ]
    return sorted(pairs)


def _kept_tokens(graph: SessionGraph, ledger: Ledger) -> list[tuple[int, float]]:
    pairs = [
        (int(t), float(p))
        for turn in graph.turns
        if turn.turn_id not in ledger._excluded
        for t, p in zip(turn.generation.tokens, turn.generation.logprobs, strict=True)
    ]
    return sorted(pairs)


def _small_run(renderer: TemplateRenderer) -> SessionGraph:
    graph = SessionGraph(renderer)
    request = conversation(system("s"), user("u"))
    prompt = graph.continue_or_fork(ChainKey(), request)
    sampled = generation(renderer, "Hi.<|im_end|>")
    graph.commit(
        prompt, sampled, renderer.parse(sampled.tokens, sampled.finish_reason, prompt_tokens=prompt.new_tokens)
    )
    graph.delivered(prompt.turn_id)
    return graph


def test_sabotage_a_turn_that_is_forgotten_raises_the_alarm(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _small_run(renderer)
    monkeypatch.setattr(Ledger, "train", lambda self, turn_id, count: None)
    with pytest.raises(LawError, match="law 1"):
        graph.export()


def test_sabotage_a_turn_that_trains_twice_raises_the_alarm(renderer: TemplateRenderer) -> None:
    ledger = Ledger()
    ledger.sample("t", 3)
    ledger.train("t", 3)
    ledger.train("t", 3)
    with pytest.raises(LawError, match="sampled 3 tokens, but 6 train"):
        ledger.balance()


def test_sabotage_a_miscount_that_cancels_out_over_turns_raises_the_alarm() -> None:
    ledger = Ledger()
    ledger.sample("a", 2)
    ledger.sample("b", 2)
    ledger.train("a", 3)
    ledger.train("b", 1)
    with pytest.raises(LawError, match="ledger: turn"):
        ledger.balance()


def test_sabotage_segments_that_train_less_than_the_ledger_says_raise_the_alarm(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _small_run(renderer)
    honest = graph_module.linearize
    monkeypatch.setattr(graph_module, "linearize", lambda nodes, ledger, **limits: honest(nodes, ledger, **limits)[:-1])
    with pytest.raises(LawError, match="segments train 0 tokens"):
        graph.export()


def test_a_turn_cannot_be_excluded_twice() -> None:
    ledger = Ledger()
    ledger.exclude("t", ExclusionReason.CANCELLED, 1)
    with pytest.raises(LawError, match="was excluded twice"):
        ledger.exclude("t", ExclusionReason.UNDELIVERED, 1)


def test_sabotage_a_renderer_that_touches_recorded_tokens_cannot(renderer: TemplateRenderer) -> None:
    """Law 2: the graph joins the recorded arrays itself, so a bridge can only add."""
    graph = _small_run(renderer)
    before = graph.turns[0]
    reply = Message(role=Role.ASSISTANT, content="Hi.")
    prompt = graph.continue_or_fork(ChainKey(), conversation(system("s"), user("u"), reply, user("more")))
    recorded = np.concatenate([before.prompt_tokens, before.generation.tokens])
    assert prompt.tokens[: len(recorded)].tolist() == recorded.tolist()
