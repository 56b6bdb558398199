"""The algorithm: schedule, ranges, and checks of what parts return."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest
from algo_cases import algorithm, batch

from rl_agent.algo.advantage.gae import GaeConfig
from rl_agent.algo.advantage.pass_at_k import PassAtKConfig
from rl_agent.algo.advantage.reinforce_plus_plus import ReinforcePlusPlusConfig
from rl_agent.algo.advantage.remax import RemaxConfig
from rl_agent.algo.correction.decoupled import DecoupledConfig
from rl_agent.algo.correction.truncated import TruncatedConfig
from rl_agent.algo.divergence import KlEstimator
from rl_agent.algo.kl.penalty import PenaltyConfig
from rl_agent.algo.loss.distillation import DistillationConfig
from rl_agent.config.algo import (
    AdvantageConfig,
    AggregationConfig,
    CorrectionConfig,
    KlConfig,
    LossConfig,
    LrDecay,
    Need,
    Proximal,
    ShapingConfig,
)
from rl_agent.config.schema import Config
from rl_agent.errors import ConfigError
from rl_agent.jobs.configs import TrainConfig


def test_the_learning_rate_warms_up_in_a_straight_line_and_then_stays() -> None:
    bundle = algorithm(lr=4.0, lr_warmup_steps=4)
    assert [bundle.learning_rate(step, 10) for step in range(6)] == [1.0, 2.0, 3.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize(("decay", "middle"), [(LrDecay.linear, 0.55), (LrDecay.cosine, 0.55)])
def test_the_learning_rate_decays_to_its_floor_at_the_last_step(decay: LrDecay, middle: float) -> None:
    bundle = algorithm(lr=1.0, lr_decay=decay, lr_min_ratio=0.1)
    assert bundle.learning_rate(0, 10) == pytest.approx(1.0)
    assert bundle.learning_rate(5, 10) == pytest.approx(middle)
    assert bundle.learning_rate(10, 10) == pytest.approx(0.1)
    assert bundle.learning_rate(99, 10) == pytest.approx(0.1)


@pytest.mark.parametrize("field", ["epochs", "minibatches", "group_size"])
def test_a_count_below_one_is_refused_by_name(field: str) -> None:
    with pytest.raises(ConfigError, match=f"algo.{field}"):
        algorithm(**{field: 0})


@pytest.mark.parametrize("wrong", [np.zeros(2, dtype=np.float32), np.full(3, np.nan, dtype=np.float32)])
def test_a_part_that_returns_nonsense_is_refused_by_name(wrong: Any) -> None:
    bundle = algorithm()
    bundle.advantage = lambda _batch: wrong
    with pytest.raises(ConfigError, match=r"algo\.advantage"):
        bundle.advantages(batch([(0, [0, 1, 1])], rewards=[1]))


PARTS = {
    "advantage": AdvantageConfig,
    "loss": LossConfig,
    "correction": CorrectionConfig,
    "kl": KlConfig,
    "aggregation": AggregationConfig,
    "shaping": ShapingConfig,
}


@pytest.mark.parametrize("part", PARTS)
def test_every_module_of_a_part_is_an_option_named_like_its_class(part: str) -> None:
    package = importlib.import_module(f"rl_agent.algo.{part}")
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{found.name}")
        own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
        (config,) = (value for value in own if isinstance(value, type) and issubclass(value, PARTS[part]))
        name = type(config().build()).__name__
        assert config.__name__ == f"{name}Config"
        assert found.name == "none" or found.name.replace("_", "") == name.lower()


def problems(**fields: Any) -> list[str]:
    """Return the keys of the problems of GRPO with other parts or options."""
    algo = algorithm(**fields).config
    return [problem.where for problem in algo.problems(Config(algo=algo, job=TrainConfig()))]


def test_parts_report_what_cannot_work_with_the_rest() -> None:
    assert problems() == []
    assert problems(group_size=1) == ["algo.group_size"]
    assert problems(group_size=1, advantage=ReinforcePlusPlusConfig()) == []
    assert problems(group_size=2, advantage=PassAtKConfig(k=4)) == ["algo.advantage.k"]
    assert problems(group_size=2, advantage=RemaxConfig(greedy_rollouts=2)) == ["algo.advantage.greedy_rollouts"]
    assert problems(loss=DistillationConfig()) == ["algo.loss.teacher"]
    assert problems(loss=DistillationConfig(teacher="/somewhere")) == []
    assert problems(kl=PenaltyConfig(estimator=KlEstimator.k1)) == ["algo.kl.estimator"]
    assert problems(kl=PenaltyConfig(estimator=KlEstimator.k1, importance_weighted=True)) == []
    assert problems(correction=TruncatedConfig(proximal=Proximal.rollout)) == ["algo.correction.proximal"]


def test_an_algorithm_declares_what_it_needs() -> None:
    plain = algorithm().config
    assert (plain.needs, plain.frozen_policies, plain.trains_without_advantage) == (frozenset(), 0, False)
    config = algorithm(
        advantage=GaeConfig(),
        loss=DistillationConfig(teacher="/teacher"),
        correction=DecoupledConfig(),
        kl=PenaltyConfig(reference="/reference"),
    ).config
    assert config.needs == set(Need)
    assert config.frozen_policies == 2
    assert config.frozen_folder(Need.TEACHER_LOGPROBS) == "/teacher"
    assert config.frozen_folder(Need.REFERENCE_LOGPROBS) == "/reference"
    assert config.advantage.needs_critic
    assert config.trains_without_advantage
