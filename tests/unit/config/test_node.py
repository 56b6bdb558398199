"""Sizes that several rooms ask for, from nodes with a schema and from those of a user's own class."""

from __future__ import annotations

from rl_agent.config.node import get
from rl_agent.config.rollout import GUARD_MARGIN_S, RolloutConfig, guard_s
from rl_agent.config.trainer import MegatronConfig, world_size


def test_a_field_of_a_node_is_found_whatever_the_node_is() -> None:
    assert (
        get(MegatronConfig(tensor_parallel=2), "tensor_parallel") == get({"tensor_parallel": 2}, "tensor_parallel") == 2
    )
    assert get(MegatronConfig(), "nothing") is get({}, "nothing") is None


def test_the_ranks_of_a_layout_are_the_product_of_its_sizes() -> None:
    layout = MegatronConfig(
        data_parallel=2, tensor_parallel=3, pipeline_parallel=5, context_parallel=7, expert_parallel=2
    )
    assert world_size(layout) == 210
    assert world_size({"_target_": "mine.Trainer", "data_parallel": 4}) == 4


def test_a_rollout_may_take_as_long_as_agent_and_grading_and_a_margin_unless_it_is_told() -> None:
    harness, grader = {"time_budget_s": 600}, {"timeout_s": 60}
    assert guard_s(RolloutConfig(), harness, grader) == 660 + GUARD_MARGIN_S
    assert guard_s(RolloutConfig(), {}, {"timeout_s": None}) == GUARD_MARGIN_S
    assert guard_s(RolloutConfig(guard_s=7), harness, grader) == 7
