"""Law 1 and 2, from the outside: an auditor that knows only what was sampled finds every corruption planted in an export.

Random agent runs (drifts, forks, sub-agents, compactions, retries, lost generations) give honest exports, which pass; each kind
of corruption in them is found, by the ledger, by the segments' own checks or by the auditor.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_agent.errors import LawError
from rl_agent.tokens.fork import ChainKey
from rl_agent.tokens.graph import SessionGraph
from rl_agent.tokens.ledger import ExclusionReason, Ledger
from rl_agent.tokens.messages import Message, ToolCall
from rl_agent.tokens.segment import NOT_SAMPLED, Segment, SegmentKind
from rl_agent.tokens.template_renderer import TemplateRenderer
from tests.scripted import call, conversation, generation, result, save_tokenizer, system, user

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_agent.tokens.turn import Generation


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> TemplateRenderer:
    return TemplateRenderer(save_tokenizer(tmp_path_factory.mktemp("tokenizer")))


class Recorded:
    """A random agent run; remembers what was sampled after which prompt."""

    def __init__(self, renderer: TemplateRenderer, seed: int, max_segment_tokens: int | None = None) -> None:
        self.rng = random.Random(seed)
        self.renderer = renderer
        self.graph = SessionGraph(renderer, max_segment_tokens=max_segment_tokens)
        self.turns: dict[str, tuple[tuple[int, ...], Generation]] = {}
        self.sampled = 0
        main: list[Message] = [system("s"), user("u")]
        for number in range(self.rng.randrange(2, 8)):
            main = self._step(main, ChainKey())
            if self.rng.random() < 0.3:
                child = ChainKey(agent=f"a{number}", kind=SegmentKind.SUBAGENT)
                self._step(self._step([system("sub"), user(f"find {number}")], child), child)
            if self.rng.random() < 0.2:
                self._ask([*main, user("sum up")], ChainKey(kind=SegmentKind.COMPACTION))
                main = [system("s"), user(f"summary {number}"), *main[-1:]]

    def _step(self, history: list[Message], key: ChainKey) -> list[Message]:
        reply = self._ask(history, key)
        if reply is None:
            return [*history, user("again")]
        if self.rng.random() < 0.15:
            self._ask([*history, user("beside")], key)
        new = [result(c.id, "out") for c in reply.tool_calls] or [user("go on")]
        return [*history, reply, *new]

    def _ask(self, history: list[Message], key: ChainKey) -> Message | None:
        prompt = self.graph.continue_or_fork(key, conversation(*history))
        made = generation(
            self.renderer, self.rng.choice([call("a"), call("bc"), f"Text {self.rng.random()}.<|im_end|>"])
        )
        made = dataclasses.replace(made, logprobs=(-self.rng.random() - np.arange(len(made.tokens))).astype(np.float32))
        self.sampled += len(made.tokens)
        if self.rng.random() < 0.1:
            self.graph.lose(prompt, len(made.tokens), ExclusionReason.CANCELLED)
            return None
        parsed = self.renderer.parse(made.tokens, made.finish_reason, prompt_tokens=prompt.new_tokens)
        calls = tuple(
            ToolCall(id=f"c_{prompt.turn_id}_{i}", name=c.name, arguments=c.arguments, raw=c.raw)
            for i, c in enumerate(parsed.tool_calls)
        )
        reply = dataclasses.replace(parsed, tool_calls=calls)
        self.graph.commit(prompt, made, reply)
        if self.rng.random() < 0.9:
            self.graph.delivered(prompt.turn_id)
        self.turns[prompt.turn_id] = (tuple(prompt.tokens.tolist()), made)
        return reply.as_message()


def audit(run: Recorded, segments: list[Segment], ledger: Ledger) -> None:
    """Raises LawError unless each trained token stands where it was sampled, with its number, once, and the sums agree."""
    ledger.balance()
    by_end: dict[int, list[tuple[tuple[int, ...], Generation]]] = {}
    for prompt, made in run.turns.values():
        by_end.setdefault(len(prompt), []).append((prompt, made))
    seen: Counter[tuple[tuple[int, ...], int, float]] = Counter()
    trained = 0
    for segment in segments:
        tokens = segment.tokens.tolist()
        for position in np.flatnonzero(segment.loss_mask).tolist():
            trained += 1
            if segment.weight_versions[position] == NOT_SAMPLED or not np.isfinite(segment.rollout_logprobs[position]):
                raise LawError("a trained token without version or log-probability")
            if not _was_sampled(by_end, tokens, position, float(segment.rollout_logprobs[position])):
                raise LawError("a trained token was not sampled there")
            seen[(tuple(tokens[: position + 1]), position, float(segment.rollout_logprobs[position]))] += 1
    if any(count > 1 for count in seen.values()):
        raise LawError("a token trains twice")
    if not trained + sum(ledger.excluded.values()) == ledger.sampled == run.sampled:
        raise LawError("the sums do not agree")


def _was_sampled(
    by_end: dict[int, list[tuple[tuple[int, ...], Generation]]], tokens: list[int], position: int, logprob: float
) -> bool:
    for start in range(position, -1, -1):
        for prompt, made in by_end.get(start, ()):
            offset = position - start
            if offset < len(made.tokens) and tuple(tokens[:start]) == prompt:
                same = tokens[start : position + 1] == made.tokens[: offset + 1].tolist()
                if same and float(made.logprobs[offset]) == logprob:
                    return True
    return False


FAST = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FAST
@given(seed=st.integers(0, 2**32), limit=st.sampled_from([None, 40, 120]))
def test_an_honest_export_passes(renderer: TemplateRenderer, seed: int, limit: int | None) -> None:
    run = Recorded(renderer, seed, limit)
    segments, ledger = run.graph.export()
    audit(run, segments, ledger)
    assert all(limit is None or len(s.tokens) <= limit for s in segments)


def _swap(segment: Segment, **changes: object) -> Segment:
    values = {f.name: getattr(segment, f.name) for f in dataclasses.fields(segment)}
    return Segment(**{**values, **changes})  # type: ignore[arg-type]


def _first(segment: Segment) -> int:
    return int(np.flatnonzero(segment.loss_mask)[0])


def _changed(array: np.ndarray, position: int, value: object) -> np.ndarray:
    copy = array.copy()
    copy[position] = value
    return copy


CORRUPTIONS: dict[str, Callable[[list[Segment], Ledger, int], list[Segment]]] = {
    "a token altered": lambda s, _, i: [
        *s[:i], _swap(s[i], tokens=_changed(s[i].tokens, _first(s[i]), s[i].tokens[_first(s[i])] + 1)), *s[i + 1 :]
    ],
    "a prompt token altered": lambda s, _, i: [
        *s[:i], _swap(s[i], tokens=_changed(s[i].tokens, _first(s[i]) - 1, s[i].tokens[_first(s[i]) - 1] + 1)), *s[i + 1 :]
    ],
    "a log-probability altered": lambda s, _, i: [
        *s[:i], _swap(s[i], rollout_logprobs=_changed(s[i].rollout_logprobs, _first(s[i]), -99.0)), *s[i + 1 :]
    ],
    "a log-probability lost": lambda s, _, i: [
        *s[:i], _swap(s[i], rollout_logprobs=_changed(s[i].rollout_logprobs, _first(s[i]), np.nan)), *s[i + 1 :]
    ],
    "a version lost": lambda s, _, i: [
        *s[:i], _swap(s[i], weight_versions=_changed(s[i].weight_versions, _first(s[i]), NOT_SAMPLED)), *s[i + 1 :]
    ],
    "a token masked": lambda s, _, i: [
        *s[:i], _swap(s[i], loss_mask=_changed(s[i].loss_mask, _first(s[i]), False)), *s[i + 1 :]
    ],
    "a prompt token trained": lambda s, _, i: [
        *s[:i], _swap(s[i], loss_mask=_changed(s[i].loss_mask, _first(s[i]) - 1, True)), *s[i + 1 :]
    ],
    "the mask moved": lambda s, _, i: [*s[:i], _swap(s[i], loss_mask=np.roll(s[i].loss_mask, -1)), *s[i + 1 :]],
    "a segment doubled": lambda s, _, i: [*s, s[i]],
    "a segment lost": lambda s, _, i: [*s[:i], *s[i + 1 :]],
    "two prefixes trained": lambda s, _, i: [*s, _swap(s[i], kind=SegmentKind.SUBAGENT)],
    "a turn trained once more in the ledger": lambda s, ledger, _: (ledger.train("t00001", 1), s)[1],
    "a turn sampled once more in the ledger": lambda s, ledger, _: (ledger.sample("t00001", 1), s)[1],
    "a turn forgotten in the ledger": lambda s, ledger, _: (ledger._trained.popitem(), s)[1],
    "tokens moved between turns": lambda s, ledger, _: (ledger.train("t00001", 1), ledger.train("t00002", -1), s)[2],
    "an exclusion forgotten": lambda s, ledger, _: (ledger.sample("tx", 3), s)[1],
}  # fmt: skip


@pytest.mark.parametrize("name", CORRUPTIONS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_a_planted_corruption_is_found(renderer: TemplateRenderer, name: str, seed: int) -> None:
    run = Recorded(renderer, seed)
    segments, ledger = run.graph.export()
    if not segments:
        return
    with pytest.raises(LawError):
        audit(run, CORRUPTIONS[name](list(segments), ledger, run.rng.randrange(len(segments))), ledger)


@FAST
@given(seed=st.integers(0, 2**32), limit=st.integers(1, 200))
def test_a_limit_on_segments_cuts_for_a_recorded_reason_and_moves_nothing(
    renderer: TemplateRenderer, seed: int, limit: int
) -> None:
    whole, _ = Recorded(renderer, seed).graph.export()
    run = Recorded(renderer, seed, limit)
    cut, ledger = run.graph.export()
    lost = sum(s.trained for s in whole) - sum(s.trained for s in cut)
    assert ledger.excluded.get(ExclusionReason.SEGMENT_FULL, 0) == lost
    for segment in cut:
        assert any(segment.tokens.tolist() == w.tokens[: len(segment.tokens)].tolist() for w in whole)
