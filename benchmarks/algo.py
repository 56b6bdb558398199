"""Cost of each named algorithm relative to a textbook PPO clip, on a million tokens: `python -m benchmarks.algo [--json] [--tokens N]`.

Measures advantages, corrections, weights, and the loss forward and backward. Both run in turns, and the best time of each counts,
because other load on the machine only adds time. Memory is the rise of the peak resident set, in units of the batch's [T] arrays
(those that the algorithm needs). This is a report without a bound.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rl_agent.algo.base import LossInput
from rl_agent.algo.batch import RolloutFacts, TrainBatch
from rl_agent.algo.scores import Scores
from tests.laws.algorithms import NAMED, algorithm

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_agent.algo.algorithm import Algorithm

ROLLOUTS = 256
GROUP = 8
SEGMENTS = 4
"""Segments per rollout."""
VERSION = 4


def million(tokens: int) -> TrainBatch:
    """Return rollouts of equal length. Half of their tokens train; the others come from tools and the agent CLI."""
    random = np.random.default_rng(0)
    length = tokens // (ROLLOUTS * SEGMENTS)
    total = length * ROLLOUTS * SEGMENTS
    starts = np.arange(0, total, length)
    mask = np.repeat(random.random(total // 64 + 1) < 0.5, 64)[:total]
    mask[starts] = False

    def scores() -> Any:
        return np.where(mask, np.minimum(random.normal(-0.6, 0.4, total), -1e-3), 0).astype(np.float32)

    no, nothing = np.zeros(ROLLOUTS, dtype=np.bool_), np.zeros(ROLLOUTS, dtype=np.int32)
    return TrainBatch(
        tokens=random.integers(0, 150_000, total).astype(np.int32),
        loss_mask=mask,
        rollout_logprobs=scores(),
        weight_versions=np.where(mask, VERSION, -1).astype(np.int32),
        segment_lengths=np.full(ROLLOUTS * SEGMENTS, length, dtype=np.int32),
        segment_rollout=np.repeat(np.arange(ROLLOUTS), SEGMENTS).astype(np.int32),
        rewards=(np.arange(ROLLOUTS) % 3 == 0).astype(np.float32),
        rollout_group=(np.arange(ROLLOUTS) // GROUP).astype(np.int32),
        facts=RolloutFacts(
            truncated=no, greedy=no, turns=nothing, ill_formed=nothing, tool_calls=nothing, tool_errors=nothing
        ),
        scores=Scores(old_logprobs=scores(), reference_logprobs=scores(), teacher_logprobs=scores(), values=scores()),
    )


def bare(batch: TrainBatch, logprobs: torch.Tensor, advantages: torch.Tensor) -> None:
    """Run a textbook PPO clip with a token mean."""
    old, mask = torch.from_numpy(batch.rollout_logprobs), torch.from_numpy(batch.loss_mask)
    ratio = (logprobs - old).exp()
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.28))
    ((loss * mask).sum() / mask.sum()).backward()


def full(bundle: Algorithm, batch: TrainBatch, logprobs: torch.Tensor, segment: torch.Tensor) -> None:
    """Run an algorithm as the trainer does, with the whole batch as one micro-batch."""
    ready = bundle.prepared(batch)
    weights = torch.from_numpy(bundle.weights(ready.batch))
    versions = torch.from_numpy(batch.weight_versions)

    def put(values: Any) -> Any:
        return None if values is None else torch.from_numpy(values)

    terms = bundle.token_loss(
        LossInput(
            logprobs=logprobs,
            old_logprobs=torch.from_numpy(ready.old_logprobs),
            advantages=torch.from_numpy(ready.advantages),
            loss_mask=torch.from_numpy(batch.loss_mask),
            segment=segment,
            rollout_logprobs=torch.from_numpy(batch.rollout_logprobs),
            staleness=versions,
            reference_logprobs=put(ready.batch.scores.reference_logprobs),
            teacher_logprobs=put(ready.batch.scores.teacher_logprobs),
            correction=put(ready.correction),
            corrected=put(ready.corrected),
            marked=put(ready.marked),
            kl_coefficient=ready.kl_coefficient,
        )
    )
    (weights * terms.loss).sum().backward()


def only(scores: Scores, bundle: Algorithm) -> Scores:
    """Return the scores that the algorithm needs. The trainer computes no others."""
    return Scores(**{need.value: scores.get(need) for need in bundle.config.needs})


def measured(name: str, batch: TrainBatch, repeats: int, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the best time relative to bare PPO, and the peak memory relative to the input."""
    bundle = algorithm(name)
    scored = TrainBatch(
        **{f: getattr(batch, f) for f in batch.__slots__ if f != "scores"}, scores=only(batch.scores, bundle)
    )
    segment = torch.from_numpy(np.repeat(np.arange(len(batch.segment_lengths)), batch.segment_lengths))
    logprobs = torch.from_numpy(batch.rollout_logprobs + np.float32(0.01)).requires_grad_()
    advantages = torch.from_numpy(bundle.advantages(scored) if bundle.critic is None else batch.rollout_logprobs)
    best = [math.inf, math.inf]
    for _ in range(repeats + 2):
        for number, run in enumerate(
            (lambda: bare(batch, logprobs, advantages), lambda: full(bundle, scored, logprobs, segment))
        ):
            logprobs.grad = None
            started = clock()
            run()
            best[number] = min(best[number], clock() - started)
    logprobs.grad = None
    gc.collect()
    given = (batch.tokens, batch.loss_mask, batch.rollout_logprobs, batch.weight_versions)
    arrays = [*given, *(scored.scores.get(need) for need in bundle.config.needs)]
    size = sum(a.nbytes for a in arrays) + logprobs.nbytes + segment.nbytes
    ctypes.CDLL(None).malloc_trim(0)  # exclude memory that was freed before
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    full(bundle, scored, logprobs, segment)
    return best[1] / best[0], max(0, resident("VmHWM") - before) / size


def resident(field: str) -> int:
    """Return a size in bytes from /proc/self/status."""
    line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith(field))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="measure CPU time of one thread, for a busy machine")
    chosen = parser.parse_args()
    torch.set_num_threads(1 if chosen.cpu else chosen.threads)
    clock = time.process_time if chosen.cpu else time.perf_counter
    batch = million(chosen.tokens)
    found = {name: measured(name, batch, chosen.repeats, clock) for name in NAMED}
    if chosen.json:
        print(
            json.dumps(
                {
                    "ratio_to_bare_ppo": {name: round(time, 3) for name, (time, _) in found.items()},
                    "peak_bytes_over_inputs": {name: round(peak, 2) for name, (_, peak) in found.items()},
                }
            )
        )
        return
    print(f"{'algorithm':<20}{'time / bare PPO':>16}{'peak / inputs':>16}")
    for name, (ratio, peak) in found.items():
        print(f"{name:<20}{ratio:>16.2f}{peak:>16.2f}")


if __name__ == "__main__":
    main()
