"""Whatever the agent program does to its history: everything sampled trains, in the ideal number of segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.agents import WIRES
from benchmarks.trajectory import SCENARIOS, measure

if TYPE_CHECKING:
    from rl_agent.tokens.template_renderer import TemplateRenderer


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_share_segments_and_expansion_are_ideal(renderer: TemplateRenderer, name: str, wire: str) -> None:
    scenario = SCENARIOS[name]
    found = await measure(renderer, scenario, wire=wire, rollouts=1, turns=17)
    assert found == {
        "share": 1.0,
        "segments_per_rollout": scenario.ideal,
        "ideal_segments": scenario.ideal,
        "expansion": 1.0,
    }
