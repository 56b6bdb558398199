"""Every option and experiment composes and loads; what is wrong on the command line is named, with the nearest valid name."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rl_agent.algo.loss.sft import SftConfig
from rl_agent.config import schema
from rl_agent.config.check import check
from rl_agent.config.hints import precompose
from rl_agent.config.load import build, differences, load, locate
from rl_agent.errors import ConfigError
from tests.conftest import CONF

NO_OPTIONS = ("hydra", "engine_profile", "harness_profile", "job_profile")
"""Groups that are chosen by others."""
KEYWORDS = {"optional", "override"}


def options() -> list[str]:
    found = []
    for path in sorted(CONF.rglob("*.yaml")):
        group = path.parent.relative_to(CONF).as_posix()
        if group != "." and group.split("/")[0] not in NO_OPTIONS:
            found.append(f"{group}={path.stem}")
    return found


def composed(*overrides: str) -> schema.Config:
    return load(precompose(CONF, "config", overrides))


@pytest.mark.parametrize("option", options())
def test_every_option_composes(option: str) -> None:
    experiment = [] if option.startswith("experiment=") else ["experiment=none"]
    rows = option.startswith(("data=", "experiment=swe_")) and option != "data=toy"
    extra = ["data.path=rows.jsonl"] if rows else []
    config = composed(*experiment, option, *extra)
    assert isinstance(config, schema.Config)


@pytest.mark.parametrize("harness", ["claude_code", "codex"])
@pytest.mark.parametrize("job", ["train", "sft"])
def test_the_default_has_no_contradiction_for_any_harness_and_job(harness: str, job: str) -> None:
    config = composed(f"harness={harness}", f"job={job}")
    assert check(config) == []
    assert config.model.style == harness
    assert config.tuned_for == config.model.name == "tiny"


def test_the_gpu_path_composes() -> None:
    config = composed("experiment=none", "engine=vllm", "trainer=megatron", "model=qwen3_8b")
    assert config.engine.dtype == "bfloat16"


def test_job_sft_brings_its_own_algorithm() -> None:
    assert isinstance(composed("job=sft").algo.loss, SftConfig)
    assert composed("job=train").algo.loss._target_.endswith("PpoClipLoss")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["harness=claude_cod"], "`harness=claude_cod`.*Did you mean `claude_code`"),
        (["algo.lrr=1"], "`algo.lrr`.*Did you mean `algo.lr`"),
        (["harnes=codex"], "`harnes`.*Did you mean `harness`"),
        (["experiment=embeded"], "Did you mean `embedded`"),
        (["algo/loss=ppo_cli"], "Did you mean `ppo_clip`"),
        (["+algo.lrr=1"], "unknown key `algo.lrr`.*Did you mean `algo.lr`"),
        (["+foo=1"], "unknown key `foo`"),
        (["+algo.loss.cliphigh=1"], "Did you mean `algo.loss.clip_high`"),
        (["~algo"], "group `algo` has no option chosen"),
        (["harness=null"], "no option `null`"),
        (["algo.lr=abc"], "'abc'.*could not be converted to Float"),
        (["harness.prompt=a=b"], "quoted twice"),
        (["harness.prompt={x}"], "quoted twice"),
        (["model=qwen3_4b"], "experiment=none"),
        (["algo.lr=1e-4,nonsense", "harness=codx"], "Did you mean `codex`"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        composed(*overrides)


def test_all_contradictions_are_listed_at_once() -> None:
    config = composed(
        "tuned_for=other",
        "rollout.max_response_tokens=99999",
        "rollout.sampling.temperature=0.7",
        "algo.max_staleness=-1",
        "model.path=/does/not/exist",
        "adapter=openai_responses",
        "adapter.port=8000",
        "cluster.rollout_workers=2",
    )
    places = {problem.where for problem in check(config)}
    assert places == {
        "experiment",
        "rollout.max_response_tokens",
        "rollout.sampling",
        "algo.max_staleness",
        "model.path",
        "adapter.dialect",
        "adapter.port",
    }


def test_contradictions_between_the_parts_of_an_algorithm_are_named() -> None:
    for overrides, place in (
        (["algo=opd"], "algo.loss.teacher"),
        (["algo.group_size=1"], "algo.group_size"),
        (["algo/advantage=pass_at_k", "algo.advantage.k=9"], "algo.advantage.k"),
        (["algo/advantage=remax", "algo.advantage.greedy_rollouts=8"], "algo.advantage.greedy_rollouts"),
        (["algo/correction=truncated", "algo.correction.proximal=rollout"], "algo.correction.proximal"),
    ):
        assert [problem.where for problem in check(composed(*overrides))] == [place], overrides


def nodes() -> list[tuple[str, type]]:
    return [(f"{group}/{name}", node) for group, schemas in schema.GROUPS.items() for name, node in schemas.items()]


@pytest.mark.parametrize(("where", "node"), nodes(), ids=[where for where, _ in nodes()])
def test_schema_fields_are_the_constructor_parameters_of_the_target(where: str, node: type) -> None:
    target = getattr(node(), "_target_", None) if "_target_" in getattr(node, "__dataclass_fields__", {}) else None
    if not target or target == "???" or not inspect.isclass(located := locate(target)):
        return
    parameters = list(inspect.signature(located).parameters)
    fields = [name for name in node.__dataclass_fields__ if name != "_target_"]
    assert sorted(parameters) == sorted(fields)


@pytest.mark.parametrize("harness", ["claude_code", "codex"])
def test_the_dialect_that_check_knows_is_that_of_the_harness(harness: str) -> None:
    from rl_agent.config.check import _DIALECTS

    node = composed(f"harness={harness}").harness
    assert build(node).dialect == _DIALECTS[node._target_]
    locate(_DIALECTS[node._target_])


def test_what_a_resume_changes_is_named() -> None:
    before = {"seed": 0, "algo": {"lr": 1e-4, "epochs": 3}, "tags": ["a"]}
    after = {"seed": 0, "algo": {"lr": 3e-4, "epochs": 3}, "tags": ["a"], "new": 1}
    assert differences(before, after) == ["algo.lr: 0.0001 -> 0.0003", "new: None -> 1"]
    assert differences(before, before) == []


def test_defaults_lists_hold_only_known_words() -> None:
    for path in CONF.rglob("*.yaml"):
        for entry in (yaml.safe_load(path.read_text()) or {}).get("defaults", []):
            key = next(iter(entry)) if isinstance(entry, dict) else str(entry)
            words = key.split()[:-1]
            assert set(words) <= KEYWORDS, f"{path}: {entry}"


@pytest.mark.parametrize("group", ["experiment", "debug", "engine_profile", "harness_profile", "job_profile"])
def test_configs_that_set_several_groups_are_global(group: str) -> None:
    for path in (CONF / group).glob("*.yaml"):
        assert path.read_text().startswith("# @package _global_"), path


def test_the_help_page_names_every_option() -> None:
    page = (CONF / "hydra" / "help" / "rl_agent.yaml").read_text()
    whole = [
        option for option in options() if "/" not in option
    ]  # parts of an algorithm are named with their group only
    missing = [option for option in whole if option.partition("=")[2] not in page]
    assert not missing


def test_config_code_imports_nothing_heavy() -> None:
    code = (
        "import sys, rl_agent.config.schema, rl_agent.config.check, rl_agent.config.hints, rl_agent.config.load;"
        "print(sorted({'torch', 'ray', 'vllm', 'megatron', 'transformers', 'wandb', 'aiohttp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_start_does_not_wait_for_torch() -> None:
    """Seconds of a processor in each process: the controller and the rollout workers have no use for it."""
    code = (
        "import sys, rl_agent.jobs.train, rl_agent.jobs.held_out, rl_agent.weights.disk;"
        "from rl_agent.tokens.build import build_renderer; from rl_agent.embedded.tiny import WARM_STARTS;"
        "build_renderer(WARM_STARTS / 'codex');"
        "print(sorted({'torch', 'vllm', 'megatron', 'wandb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_room_says_its_job_and_holds_no_code() -> None:
    import ast
    import pkgutil

    import rl_agent

    for module in pkgutil.walk_packages(rl_agent.__path__, "rl_agent."):
        if module.ispkg:
            path = importlib.import_module(module.name).__file__
            assert path is not None
            body = ast.parse(Path(path).read_text()).body
            assert [type(node) for node in body] == [ast.Expr], f"{module.name}: only its job belongs here"


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in Path(schema.__file__).parent.parent.rglob("*.py")}
    too_long = {str(path): count for path, count in lengths.items() if count > 400}
    assert not too_long
    assert sorted(lengths.values())[len(lengths) // 2] <= 150
