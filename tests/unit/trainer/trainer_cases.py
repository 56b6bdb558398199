"""Tiny models, batches and trainers for the trainer's tests. Imports neither torch nor Megatron at the top."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rl_agent.algo.advantage.constant import ConstantConfig
from rl_agent.algo.advantage.grpo import GrpoConfig
from rl_agent.algo.aggregation.context_mean import ContextMeanConfig
from rl_agent.algo.aggregation.token_mean import TokenMeanConfig
from rl_agent.algo.batch import TrainBatch
from rl_agent.algo.correction.none import NoCorrectionConfig
from rl_agent.algo.kl.none import NoKlConfig
from rl_agent.algo.loss.ppo_clip import PpoClipConfig
from rl_agent.algo.loss.sft import SftConfig
from rl_agent.algo.shaping.rewards import RewardsConfig
from rl_agent.config.algo import AlgorithmConfig
from rl_agent.trainer.megatron import MegatronConfig, MegatronTrainer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rl_agent.algo.algorithm import Algorithm

TINY: Final = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 101,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "hidden_act": "silu",
}
"""An odd vocabulary, so that padding it matters as soon as it is sharded."""


def import_megatron(*_unused: Any) -> None:
    """Turn this process into a trainer process."""
    from rl_agent.trainer import cpu

    cpu.install()
    importlib.import_module("rl_agent.trainer.networks")


PLAIN: Final = {"correction": NoCorrectionConfig(), "kl": NoKlConfig(), "shaping": RewardsConfig()}
"""The parts that do nothing."""


def grpo(**fields: Any) -> Algorithm:
    parts = PLAIN | {"advantage": GrpoConfig(), "loss": PpoClipConfig(), "aggregation": TokenMeanConfig()}
    return AlgorithmConfig(**(parts | {"lr": 1e-3} | fields)).build()


def sft(**fields: Any) -> Algorithm:
    parts = PLAIN | {
        "advantage": ConstantConfig(),
        "loss": SftConfig(),
        "aggregation": ContextMeanConfig(),
    }
    return AlgorithmConfig(**(parts | {"lr": 1e-2} | fields)).build()


@contextlib.contextmanager
def trainer(
    folder: Path, algorithm: Algorithm, *, total_steps: int = 10, place: dict[str, Any] | None = None, **config: Any
) -> Iterator[MegatronTrainer]:
    """A trainer that has been set up, and is closed again."""
    built = MegatronConfig(threads=1, timeout_s=60, **config).build()
    built.setup(model_folder=folder, algorithm=algorithm, seed=5, total_steps=total_steps, **(place or {}))
    try:
        yield built
    finally:
        built.close()


def random_batch(
    seed: int = 0, *, lengths: tuple[int, ...] = (19, 7, 13, 30, 2, 18, 9, 25), version: int = 0
) -> TrainBatch:
    """Two rollouts a group; one of them has two segments. Log-probabilities lie around those of a random model."""
    random = np.random.default_rng(seed)
    segments = np.array(lengths, dtype=np.int32)
    total = int(segments.sum())
    mask = random.random(total) < 0.5
    mask[np.cumsum(segments) - segments] = False
    rollout = np.maximum(np.arange(len(lengths)) - 1, 0).astype(np.int32)
    rollouts = len(lengths) - 1
    return TrainBatch(
        tokens=random.integers(0, TINY["vocab_size"], total).astype(np.int32),
        loss_mask=mask,
        rollout_logprobs=np.where(mask, random.normal(-6, 1, total), 0).astype(np.float32),
        weight_versions=np.where(mask, version, -1).astype(np.int32),
        segment_lengths=segments,
        segment_rollout=rollout,
        rewards=random.permutation(np.arange(rollouts) % 2).astype(np.float32),
        rollout_group=(np.arange(rollouts) // 2).astype(np.int32),
    )


def segments(batch: TrainBatch) -> list[np.ndarray]:
    """The tokens of each segment."""
    return np.split(batch.tokens, np.cumsum(batch.segment_lengths)[:-1])


def on_policy(trainer: MegatronTrainer, batch: TrainBatch) -> TrainBatch:
    """The same batch as if the trainer itself had sampled it."""
    flat = np.concatenate([np.concatenate([[0], scores]) for scores in trainer.logprobs(segments(batch))])
    values = {name: getattr(batch, name) for name in batch.__slots__}
    values["rollout_logprobs"] = np.where(batch.loss_mask, flat, 0).astype(np.float32)
    return TrainBatch(**values)


def weights(trainer: MegatronTrainer) -> dict[str, Any]:
    """Copies of the weights in Hugging Face names."""
    return {name: tensor.clone() for name, tensor in trainer._joined().named_tensors()}


def gradients(trainer: MegatronTrainer) -> dict[str, Any]:
    """The gradient that the last pass accumulated, in Hugging Face names."""
    from rl_agent.trainer.hf_weights import named_tensors

    rank = trainer._joined()

    class Gradients:
        def named_parameters(self) -> Iterator[tuple[str, Any]]:
            return ((name, p.main_grad.clone()) for name, p in rank._wrapped.module.named_parameters())

    return dict(named_tensors(Gradients(), rank._table, rank._shape))
