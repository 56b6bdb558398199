"""Viewer of recorded rollouts: `python -m rl_agent.tracking.viewer <run folder> [<rollout id>]`.

Without an id, it lists one rollout per line. With an id, it shows the problem, each turn, the patch and the verdict.
With a tokenizer, it also shows every segment as the policy saw it, with the sampled tokens marked. Control characters
from a model are escaped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tokenizers import Tokenizer

from rl_agent.errors import ConfigError, RlAgentError
from rl_agent.rollout import records
from rl_agent.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rl_agent.tokens.segment import Segment

WIDTH: Final = 160
"""Output width without a terminal."""
TOKENIZER: Final = "tokenizer.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rl_agent.tracking.viewer", description="Show the rollouts of a run."
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument(
        "rollout", nargs="?", help="id of a rollout, or its first characters; default: list all rollouts"
    )
    parser.add_argument("--status", help="list only rollouts with this status")
    parser.add_argument(
        "--model", type=Path, help="folder with tokenizer.json, to show segments; default: model/ of the run"
    )
    given = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = WIDTH
    try:
        if given.rollout is None:
            _list(console, given.run, given.status)
        else:
            _show(console, given.run, given.rollout, given.model)
    except RlAgentError as error:
        Console(stderr=True, soft_wrap=True).print(Text(f"error: {error}"))
        return 1
    return 0


def recorded(run: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the step and the record of each rollout. Raises ConfigError if there are none, or if a line is invalid."""
    folder = RunFolder(run).rollouts
    steps = records.recorded_steps(folder)
    if not steps:
        raise ConfigError(f"{run}: no recorded rollouts found (rollouts/step_<n>.jsonl). Give a run folder.")
    for step in steps:
        path = folder / f"step_{step:05d}.jsonl"
        try:
            for line in path.read_bytes().splitlines():
                yield step, orjson.loads(line)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from error


def visible(text: str) -> str:
    """Return the text with control characters escaped, since a terminal would act on them."""
    return "".join(
        character if character in "\n\t" or character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _list(console: Console, run: Path, status: str | None) -> None:
    table = Table(title=f"rollouts of {run}", title_justify="left")
    for name in ("step", "rollout", "task", "status", "reward", "turns", "tokens", "seconds"):
        table.add_column(name)
    for step, record in recorded(run):
        if status is not None and record["status"] != status:
            continue
        seconds, reward = record["seconds"].get("total"), record["reward"]
        row = (
            step,
            record["rollout_id"],
            record["task_id"],
            record["status"],
            "-" if reward is None else f"{reward:g}",
            len(record["turns"]),
            record["sampled_tokens"],
            "-" if seconds is None else f"{seconds:.1f}",
        )
        table.add_row(*(Text(visible(str(cell))) for cell in row))
    console.print(table)


def _show(console: Console, run: Path, wanted: str, model: Path | None) -> None:
    found = [(step, record) for step, record in recorded(run) if record["rollout_id"].startswith(wanted)]
    if len(found) != 1:
        ids = ", ".join(record["rollout_id"] for _, record in found[:8])
        raise ConfigError(
            f"{run}: {len(found)} rollouts start with {wanted}{': ' + ids if ids else ''}. Give a unique id."
        )
    step, record = found[0]
    say = console.print
    say(Text(f"rollout {record['rollout_id']} of step {step}, task {visible(record['task_id'])}", style="bold"))
    say(Text(visible(_facts(record))))
    _part(console, "problem", record["problem_statement"])
    for number, turn in enumerate(record["turns"], start=1):
        _part(console, f"turn {number}", turn)
    for title, key in (("patch", "patch"), ("grader", "grader_log"), ("detail", "detail")):
        if record[key].strip():
            _part(console, title, record[key])
    tokenizer = _tokenizer(run, model)
    for number, segment in enumerate(records.load_segments(RunFolder(run).rollouts, step)[record["rollout_id"]]):
        title = f"segment {number}: {segment.kind}, {len(segment.tokens)} tokens, {segment.trained} trained, weights {_versions(segment)}"
        say(Text(f"\n--- {title}", style="bold cyan"))
        if tokenizer is not None:
            say(_segment_text(segment, tokenizer))
    if tokenizer is None:
        say(Text("\n(use --model <folder with tokenizer.json> to show the text of the segments)"))


def _facts(record: dict[str, Any]) -> str:
    seconds = "  ".join(f"{stage} {value:.1f}" for stage, value in record["seconds"].items())
    facts = {
        "status": record["status"],
        "reward": record["reward"],
        "attempt": record["attempt"],
        "exit": f"{record['exit_reason']} ({record['exit_code']})",
        "tests": f"{record['tests_passed']} passed, {record['tests_failed']} failed",
        "tokens": f"{record['sampled_tokens']} sampled, {record['trained_tokens']} trained, excluded {record['excluded'] or 'none'}",
        "forks": record["forks"] or "none",
        "seconds": seconds,
    }
    return "\n".join(f"  {name}: {value}" for name, value in facts.items())


def _part(console: Console, title: str, text: str) -> None:
    console.print(Text(f"\n--- {title}", style="bold cyan"))
    console.print(Text(visible(text)))


def _versions(segment: Segment) -> str:
    known = sorted({int(version) for version in segment.weight_versions[segment.loss_mask]})
    return ", ".join(map(str, known)) or "none"


def _tokenizer(run: Path, model: Path | None) -> Tokenizer | None:
    folder = model or RunFolder(run).model
    if (folder / TOKENIZER).is_file():
        return Tokenizer.from_file(str(folder / TOKENIZER))
    if model is not None:
        raise ConfigError(f"--model {model}: {TOKENIZER} not found. Give a Hugging Face folder.")
    return None


def _segment_text(segment: Segment, tokenizer: Tokenizer) -> Text:
    """Return the text of a segment. Trained tokens are between markers, and green on a terminal."""
    text, start = Text(), 0
    mask = segment.loss_mask
    while start < len(mask):
        end = start
        while end < len(mask) and mask[end] == mask[start]:
            end += 1
        piece = visible(tokenizer.decode(segment.tokens[start:end].tolist(), skip_special_tokens=False))
        text.append(f"\u27e6{piece}\u27e7" if mask[start] else piece, style="green" if mask[start] else "dim")
        start = end
    return text


if __name__ == "__main__":
    sys.exit(main())
