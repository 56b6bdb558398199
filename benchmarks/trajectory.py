"""How much of what is sampled stays trainable, and in how many segments, whatever the agent program does to its history.

    .venv/bin/python -m benchmarks.trajectory --json docs/results/trajectory.json

Each scenario runs in the forms of Claude Code, Codex and Chat Completions through the adapter's dialect and session; the worst
of the three is printed. Bounds: share 1.0, the ideal number of segments, expansion 1.0 (tokens of all segments over tokens of
the conversations as the engine saw them), export of 242k tokens in 5 ms, a session of 120 turns in 3 MB. Exit code 1 if missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import statistics
import tempfile
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.agents import COMPACTION, WIRES, Agent, Echo, Entry, InstantEngine, Results, padded, spaced
from rl_agent.adapters.record import AdapterLimits, SessionRecord
from rl_agent.adapters.session import Session
from rl_agent.tokens.turn import Sampling

if TYPE_CHECKING:
    from rl_agent.tokens.template_renderer import TemplateRenderer

SYSTEM = "You fix bugs in a repository."
EXPORT_MS = 5.0
SESSION_MB = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What the agent program does."""

    spaced: float = 0.0
    """Share of turns echoed with other white space."""
    padded: float = 0.0
    reminder_every: int = 0
    drops_reasoning: bool = False
    parallel: float = 0.0
    shuffled: bool = False
    compacts_at: int = 0
    sub_agents: int = 0
    sub_turns: int = 6
    retry_every: int = 0
    broken_every: int = 0
    """Replies whose call cannot be read, so that the client gets their raw text, reasoning included."""
    ideal: int = 1


SCENARIOS = {
    "canonical_echo": Scenario(),
    "white_space_10_percent": Scenario(spaced=0.1),
    "white_space_100_percent": Scenario(spaced=1.0),
    "arguments_padded_and_reordered": Scenario(padded=1.0),
    "reminder_every_5_turns": Scenario(reminder_every=5),
    "client_drops_thinking": Scenario(drops_reasoning=True),
    "client_echoes_reasoning": Scenario(spaced=0.3, padded=0.3),
    "parallel_calls_20_percent": Scenario(parallel=0.2),
    "results_out_of_order": Scenario(parallel=0.5, shuffled=True),
    "compaction_at_the_middle": Scenario(compacts_at=15, ideal=3),
    "sub_agents_3_of_6_turns": Scenario(sub_agents=3, ideal=4),
    "retry_every_5_turns": Scenario(retry_every=5),
    "ill_formed_with_thinking": Scenario(broken_every=3),
    "everything": Scenario(
        spaced=0.5, padded=0.5, reminder_every=4, drops_reasoning=True, parallel=0.3, shuffled=True, retry_every=3
    ),
}


async def run_agent(agent: Agent, scenario: Scenario, turns: int) -> None:
    """A whole agent run."""
    history: list[Entry] = [agent.words(30)]
    chain = "main"
    for number in range(1, turns + 1):
        if number == scenario.compacts_at:
            history = await _compact(agent, history)
            chain = "after"
        if scenario.sub_agents and number == turns // 2:
            for child in range(scenario.sub_agents):
                await _sub_agent(agent, child, scenario.sub_turns)
        calls = 0 if number == turns or number % 7 == 0 else 1 + (agent.rng.random() < scenario.parallel)
        broken = bool(scenario.broken_every) and number % scenario.broken_every == 0
        line = agent.broken_line() if broken else agent.line(calls)
        echo = await agent.ask(chain, SYSTEM, history, line)
        if scenario.retry_every and number % scenario.retry_every == 0:
            again = await agent.ask(chain, SYSTEM, history, None)
            if again.document != echo.document:
                raise SystemExit("a retry got another reply")
        history.append(_kept(agent, scenario, echo))
        due = scenario.reminder_every and number % scenario.reminder_every == 0
        reminder = "<system-reminder>" + agent.words(15) + "</system-reminder>" if due else None
        if echo.calls:
            history.append(agent.results(echo, shuffled=scenario.shuffled, reminder=reminder))
        else:
            history.append(agent.words(5))


def _kept(agent: Agent, scenario: Scenario, echo: Echo) -> Echo:
    """The reply as the client will echo it."""
    if scenario.drops_reasoning:
        echo = replace(echo, reasoning=None)
    if agent.rng.random() < scenario.padded:
        echo = padded(echo)
    return spaced(echo) if agent.rng.random() < scenario.spaced else echo


async def _compact(agent: Agent, history: list[Entry]) -> list[Entry]:
    """As Claude Code does it: the summary is asked for without the last exchange, which stays after it."""
    kept = history[:-2]
    last = kept[-1]
    if isinstance(last, Results):
        kept[-1] = replace(last, reminder=COMPACTION)
    else:
        kept.append(COMPACTION)
    line = agent.line(0, thinks=False)
    summary = await agent.ask("compaction", SYSTEM, kept, line, kind="compaction")
    return ["This session is being continued from a previous conversation. " + summary.text, *history[-2:]]


async def _sub_agent(agent: Agent, child: int, turns: int) -> None:
    history: list[Entry] = [f"Sub-task {child}: " + agent.words(10)]
    name, system = f"a{child:016x}", f"You search a repository, number {child}."
    for number in range(1, turns + 1):
        echo = await agent.ask(name, system, history, agent.line(number < turns), agent=name)
        history += [echo, agent.results(echo) if echo.calls else "Go on."]


def new_session(renderer: TemplateRenderer, engine: InstantEngine, tasks: asyncio.TaskGroup) -> Session:
    """A session without a server."""
    return Session(
        session_id="s",
        token="t",
        rollout_id="r",
        engine=engine,  # type: ignore[arg-type]
        renderer=renderer,
        sampling=Sampling(max_tokens=8192),
        limits=AdapterLimits(max_context_tokens=10_000_000),
        tasks=tasks,
    )


async def one_rollout(
    renderer: TemplateRenderer, scenario: Scenario, wire: str, turns: int, seed: int
) -> tuple[SessionRecord, Agent]:
    """One agent run and what its session left."""
    engine = InstantEngine(renderer)
    async with asyncio.TaskGroup() as tasks:
        session = new_session(renderer, engine, tasks)
        agent = Agent(session, WIRES[wire](), engine, random.Random(seed))
        await run_agent(agent, scenario, turns)
        record = await session.close()
    check_tokens(record, engine)
    return record, agent


def check_tokens(record: SessionRecord, engine: InstantEngine) -> None:
    """What trains is, token for token, what the engine sampled."""
    trained: Counter[int] = Counter()
    for segment in record.segments:
        trained.update(segment.tokens[segment.loss_mask].tolist())
    sampled: Counter[int] = Counter()
    for tokens in engine.sampled:
        sampled.update(tokens.tolist())
    if trained - sampled:
        raise SystemExit("a token trains that was not sampled, or twice")


async def measure(
    renderer: TemplateRenderer, scenario: Scenario, *, wire: str, rollouts: int, turns: int
) -> dict[str, Any]:
    """The figures of one scenario in one form."""
    sampled = trained = segments = tokens = ideal = 0
    for seed in range(rollouts):
        record, agent = await one_rollout(renderer, scenario, wire, turns, seed)
        sampled += sum(len(s) for s in agent.engine.sampled)
        trained += record.trained_tokens
        segments += len(record.segments)
        tokens += sum(len(s.tokens) for s in record.segments)
        ideal += sum(agent.chains.values())
    return {
        "share": trained / sampled,
        "segments_per_rollout": segments / rollouts,
        "ideal_segments": scenario.ideal,
        "expansion": tokens / ideal,
    }


def worst(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """The worst of several forms."""
    return {
        "share": round(min(f["share"] for f in figures), 6),
        "segments_per_rollout": max(f["segments_per_rollout"] for f in figures),
        "ideal_segments": figures[0]["ideal_segments"],
        "expansion": round(max(f["expansion"] for f in figures), 6),
    }


async def big_session(renderer: TemplateRenderer, turns: int, output_words: int) -> tuple[float, int, list[float]]:
    """(MB that a long session holds, its tokens, times of its export in ms)."""
    engine = InstantEngine(renderer)
    async with asyncio.TaskGroup() as tasks:
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        session = new_session(renderer, engine, tasks)
        agent = Agent(session, WIRES["claude_code"](), engine, random.Random(0), output_words)
        await run_agent(agent, Scenario(), turns)
        tokens = agent.chains["main"]
        engine.sampled.clear()
        del agent
        gc.collect()
        held = (tracemalloc.get_traced_memory()[0] - before) / 1e6
        tracemalloc.stop()
        graph = session._graph
        times = []
        for _ in range(5):
            started = time.perf_counter()
            graph.export()
            times.append((time.perf_counter() - started) * 1000)
        await session.close()
    return held, tokens, times


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer folder instead of the built one")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        from benchmarks.vocabulary import qwen_size_renderer  # noqa: PLC0415 (as its path is known only here)

        renderer = qwen_size_renderer(Path(temporary), arguments.tokenizer)
        found = asyncio.run(figures(renderer, arguments.rollouts, arguments.turns))
    print(json.dumps(found, indent=2))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    raise SystemExit(0 if fine(found) else 1)


async def figures(renderer: TemplateRenderer, rollouts: int, turns: int) -> dict[str, Any]:
    """Everything that is printed."""
    found: dict[str, Any] = {"scenarios": {}}
    for name, scenario in SCENARIOS.items():
        measured = [await measure(renderer, scenario, wire=wire, rollouts=rollouts, turns=turns) for wire in WIRES]
        found["scenarios"][name] = worst(measured)
    held, tokens, _ = await big_session(renderer, 120, 1150)
    found |= {"session_mb_120_turns": round(held, 2), "session_tokens": tokens}
    _, tokens, times = await big_session(renderer, 120, 2300)
    found |= {"export_ms_242k": round(statistics.median(times), 2), "export_tokens": tokens}
    return found


def fine(found: dict[str, Any]) -> bool:
    """Whether all bounds hold."""
    exact = all(
        f["share"] == 1.0 and f["segments_per_rollout"] == f["ideal_segments"] and f["expansion"] == 1.0
        for f in found["scenarios"].values()
    )
    return exact and found["export_ms_242k"] <= EXPORT_MS and found["session_mb_120_turns"] <= SESSION_MB


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
