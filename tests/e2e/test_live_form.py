"""The demonstrations have the live CLIs' exact form: the same agent run, recorded for real, gives the same tokens."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rl_agent.adapters.build import build_adapter
from rl_agent.config.check import check
from rl_agent.config.hints import precompose
from rl_agent.config.load import load
from rl_agent.embedded.agent_style import AgentStyle, agent_style, codex_frame
from rl_agent.embedded.demonstration import Demonstrations, encoder
from rl_agent.embedded.tiny import WARM_STARTS
from rl_agent.embedded.toy import ToyTask, toy_tasks
from rl_agent.rollout.episode import EpisodeLimits, EpisodeRunner
from rl_agent.rollout.group import EpisodeRequest, Slot
from rl_agent.tokens.template_renderer import TemplateRenderer
from rl_agent.tokens.turn import Sampling
from tests.conftest import CONF

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.config.schema import Config
    from rl_agent.rollout.group import Rollout

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FRAME = re.compile(r"Chunk ID: (?P<chunk>[0-9a-f]{6})\nWall time: (?P<wall>[0-9.]+) seconds\n")


async def record(config: Config, task: ToyTask, scratch: Path) -> Rollout:
    """One real episode whose policy is the demonstrator."""
    harness = config.harness.build()
    folder = WARM_STARTS / config.model.style
    server = config.engine.build()
    address = await server.start(
        model_folder=folder, log=scratch / "engine.log", weight_backend="disk", max_context_tokens=2048
    )
    async with server.client(address) as engine:
        adapter = build_adapter(
            config.adapter,
            harness_dialect=config.harness.dialect,
            engine=engine,
            renderer=TemplateRenderer(folder),
            sampling=Sampling(max_tokens=64),
            max_context_tokens=2048,
            max_turns=6,
        )
        async with adapter:
            runner = EpisodeRunner(
                provider=config.sandbox.build(),
                harness=harness,
                assets=harness.find_assets(),
                grader=config.grader.build(),
                adapter=adapter,
                advertise_host=None,
                limits=EpisodeLimits(agent_s=60, workspace_s=60, sandbox_s=180, guard_s=180),
            )
            request = EpisodeRequest(task=task.as_task("host"), slot=Slot(position=0, member=0))
            return await runner.run(request)


def as_seen(style: AgentStyle, text: str) -> AgentStyle:
    """The style with the chunk ids and wall times of a recorded run, which no two runs share."""
    frames = [match.groupdict() for match in FRAME.finditer(text)]
    if not frames:
        return style
    look, edit = frames
    return dataclasses.replace(
        style,
        after_cat=lambda source, _: codex_frame(source, chunk_id=look["chunk"], wall=look["wall"]),
        after_edit=lambda _, __: codex_frame("", chunk_id=edit["chunk"], wall=edit["wall"]),
    )


@pytest.mark.parametrize("harness", ["claude_code", "codex"])
async def test_a_demonstration_is_token_for_token_what_the_live_cli_gives(harness: str, tmp_path: Path) -> None:
    config = load(precompose(CONF, "config", [f"harness={harness}", "engine=demonstrator"]))
    assert check(config) == []
    folder = WARM_STARTS / harness
    renderer = TemplateRenderer(folder)
    stream = toy_tasks(11, "train", ["sub", "up", "even"])
    for task in [next(stream) for _ in range(3)]:
        rollout = await record(config, task, tmp_path)
        assert rollout.status == "solved", (rollout.status, rollout.detail, rollout.turns)
        (segment,) = rollout.segments
        style = as_seen(agent_style(harness), renderer.text(segment.tokens))
        demonstration = Demonstrations(style, renderer, encoder(folder)).make(task, task.right)
        assert renderer.text(segment.tokens) == renderer.text(demonstration.tokens)
        np.testing.assert_array_equal(segment.tokens, demonstration.tokens)
        np.testing.assert_array_equal(segment.loss_mask, demonstration.sampled)
