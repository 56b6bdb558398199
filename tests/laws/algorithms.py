"""Batches, algorithms, and the loss and gradient of the trainer, for the laws that hold for every algorithm."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import yaml
from hypothesis import strategies as st
from omegaconf import OmegaConf

from rl_agent.algo.base import LossInput
from rl_agent.algo.batch import Prepared, RolloutFacts, TrainBatch
from rl_agent.algo.scores import Scores
from rl_agent.config.algo import AlgorithmConfig, LrDecay
from rl_agent.config.plug_in import PlugInConfig
from rl_agent.trainer.bin_packing import pack
from tests.conftest import CONF

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rl_agent.algo.algorithm import Algorithm

NAMED = (
    "grpo",
    "dr_grpo",
    "dapo",
    "rloo",
    "reinforce_plus_plus",
    "ppo",
    "gspo",
    "cispo",
    "sapo",
    "maxrl",
    "sft",
    "opd",
)
REFERENCE = "${rollout.max_context_tokens}"
VERSION = 3
"""Weight version of the trainer."""


CONTEXT = 2048
"""Value of `rollout.max_context_tokens`, which some parts refer to."""


@cache
def part(group: str, option: str) -> Any:
    """Return the config of `algo/<group>=<option>` without composing a whole configuration, which takes half a second."""
    preset, values = CONF / "algo" / group / f"{option}.yaml", {}
    if preset.exists():
        values = yaml.safe_load(preset.read_text().replace(REFERENCE, str(CONTEXT)))
        option = values.pop("defaults")[0]
    module = importlib.import_module(f"rl_agent.algo.{group}.{option}")
    (config,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, PlugInConfig) and value.__module__ == module.__name__
    )
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(config), values))


def algorithm(name: str, **options: str) -> Algorithm:
    """Build `algo=<name>`, with other parts where they are given: `algorithm("grpo", loss="cispo")`."""
    values = yaml.safe_load((CONF / "algo" / f"{name}.yaml").read_text())
    chosen = {k: v for entry in values.pop("defaults") if isinstance(entry, dict) for k, v in entry.items()}
    parts = {group: part(group, options.get(group, option)) for group, option in chosen.items()}
    if "lr_decay" in values:
        values["lr_decay"] = LrDecay(values["lr_decay"])
    return AlgorithmConfig(**parts, **values).build()


@st.composite
def batches(draw: Any) -> TrainBatch:
    """Draw up to six rollouts in up to three groups, each with up to three segments of up to nine tokens, with all scores."""
    lengths = draw(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=6))
    return random_batch(lengths, seed=draw(st.integers(0, 2**32 - 1)))


def random_batch(lengths: list[list[int]], seed: int) -> TrainBatch:
    """Return a batch with segments of these lengths. Each token has its own number: the "model" is one parameter per token."""
    random = np.random.default_rng(seed)
    segment_lengths = np.array([size for rollout in lengths for size in rollout], dtype=np.int32)
    total, rollouts = int(segment_lengths.sum()), len(lengths)
    mask = random.random(total) < 0.6
    mask[np.cumsum(segment_lengths) - segment_lengths] = False

    def scores(mean: float, most: float = -0.05) -> Any:
        return np.where(mask, np.minimum(random.normal(mean, 0.7, total), most), 0).astype(np.float32)

    def counts() -> Any:
        return random.integers(0, 4, rollouts).astype(np.int32)

    return TrainBatch(
        tokens=np.arange(total, dtype=np.int32),
        loss_mask=mask,
        rollout_logprobs=scores(-2),
        weight_versions=np.where(mask, random.integers(0, VERSION + 1, total), -1).astype(np.int32),
        segment_lengths=segment_lengths,
        segment_rollout=np.repeat(np.arange(rollouts), [len(own) for own in lengths]).astype(np.int32),
        rewards=random.integers(0, 2, rollouts).astype(np.float32),
        rollout_group=(np.arange(rollouts) % 3).astype(np.int32),
        facts=RolloutFacts(
            truncated=random.random(rollouts) < 0.2,
            greedy=np.zeros(rollouts, dtype=np.bool_),
            turns=counts() + 1,
            ill_formed=counts(),
            tool_calls=counts(),
            tool_errors=counts(),
        ),
        scores=Scores(
            old_logprobs=scores(-2),
            reference_logprobs=scores(-2),
            teacher_logprobs=scores(-1.5),
            values=scores(0.3, most=9.0),
        ),
    )


def current(batch: TrainBatch) -> torch.Tensor:
    """Return the model: a log-probability for each token number, close to the sampler's."""
    return torch.linspace(-4, -0.5, int(batch.tokens.max(initial=0)) + 1, dtype=torch.float64)


def loss_and_gradient(
    bundle: Algorithm,
    batch: TrainBatch,
    *,
    budget: int = 10_000,
    copies: int = 1,
    only: Iterable[int] | None = None,
    model: torch.Tensor | None = None,
) -> tuple[float, np.ndarray]:
    """Return loss and gradient as the trainer computes them: micro-batches on several copies of a model, added up.

    The gradient is indexed by token *number*, so it can be compared across orders. `only`: the share of these copies.
    """
    parameters = (current(batch) if model is None else model).clone().requires_grad_()
    ready = bundle.prepared(batch)
    weights = bundle.weights(ready.batch)
    total = 0.0
    bins = pack(batch.segment_lengths, budget=budget, copies=copies)
    chosen = range(copies) if only is None else only
    for segments in itertools.chain.from_iterable(bins[copy::copies] for copy in chosen):
        inputs, at = loss_input(ready, segments, parameters)
        loss = (torch.from_numpy(weights[at]).double() * bundle.token_loss(inputs).loss).sum()
        if loss.requires_grad:
            loss.backward()
        total += loss.item()
    gradient = parameters.grad if parameters.grad is not None else torch.zeros_like(parameters)
    return total, gradient.numpy()


def loss_input(ready: Prepared, segments: Iterable[int], parameters: torch.Tensor) -> tuple[LossInput, np.ndarray]:
    """Return the micro-batch of some segments, in float64, and the indices of its predictions in the batch."""
    batch = ready.batch
    starts = batch.segment_starts()
    places = [np.arange(starts[s] + 1, starts[s] + batch.segment_lengths[s]) for s in segments]
    at = np.concatenate([np.zeros(0, dtype=np.int64), *places])

    def put(values: Any) -> Any:
        return None if values is None else torch.from_numpy(values[at])

    def double(values: Any) -> Any:
        return None if values is None else torch.from_numpy(values[at]).double()

    versions = batch.weight_versions
    inputs = LossInput(
        logprobs=parameters[batch.tokens[at]],
        old_logprobs=double(ready.old_logprobs),
        advantages=double(ready.advantages),
        loss_mask=put(batch.loss_mask),
        segment=torch.from_numpy(np.repeat(np.arange(len(places)), [len(p) for p in places])),
        rollout_logprobs=double(batch.rollout_logprobs),
        staleness=put(np.where(versions >= 0, VERSION - versions, -1).astype(np.int32)),
        reference_logprobs=double(batch.scores.reference_logprobs),
        teacher_logprobs=double(batch.scores.teacher_logprobs),
        correction=double(ready.correction),
        corrected=put(ready.corrected),
        marked=put(ready.marked),
        kl_coefficient=ready.kl_coefficient,
    )
    return inputs, at


def reordered(batch: TrainBatch, seed: int) -> TrainBatch:
    """Return the same rollouts in another order. The segments of each rollout stay in the order of time."""
    order = np.random.default_rng(seed).permutation(len(batch.rewards))
    segments = [s for rollout in order for s in np.flatnonzero(batch.segment_rollout == rollout)]
    starts = batch.segment_starts()
    places = np.concatenate(
        [np.zeros(0, dtype=np.int64), *(np.arange(starts[s], starts[s] + batch.segment_lengths[s]) for s in segments)]
    )
    number = np.argsort(order)
    arrays = {n: getattr(batch, n)[places] for n in ("tokens", "loss_mask", "rollout_logprobs", "weight_versions")}
    facts, scores = batch.facts, batch.scores
    assert facts is not None
    return dataclasses.replace(
        batch,
        **arrays,
        segment_lengths=batch.segment_lengths[segments],
        segment_rollout=number[batch.segment_rollout[segments]].astype(np.int32),
        rewards=batch.rewards[order],
        rollout_group=batch.rollout_group[order],
        facts=dataclasses.replace(facts, **{f.name: getattr(facts, f.name)[order] for f in dataclasses.fields(facts)}),
        scores=dataclasses.replace(
            scores, **{f.name: getattr(scores, f.name)[places] for f in dataclasses.fields(scores)}
        ),
    )


def cut(batch: TrainBatch) -> TrainBatch:
    """Cut every segment before each of its untrained tokens: as many segments as possible, with the same trained tokens."""
    begins = ~batch.loss_mask
    lengths = np.diff([*np.flatnonzero(begins), len(batch.tokens)]).astype(np.int32)
    return dataclasses.replace(
        batch, segment_lengths=lengths, segment_rollout=batch.token_rollout()[begins].astype(np.int32)
    )
