"""Every option and experiment composes and loads; what is wrong on the command line is named, with the nearest valid name."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import fields
from itertools import zip_longest
from pathlib import Path

import pytest
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from rl_agent.config import schema
from rl_agent.config.check import check
from rl_agent.config.hints import precompose
from rl_agent.config.load import differences, load
from rl_agent.config.names import locate
from rl_agent.config.options import DECLARED, RENAMED, SCANNED, option_class, register
from rl_agent.config.plug_in import PlugInConfig
from rl_agent.errors import ConfigError
from tests.conftest import CONF

NO_OPTIONS = ("hydra", "engine_profile", "harness_profile", "job_profile", "experiment", "debug")
"""Groups that are chosen by others, or set values of several groups."""
KEYWORDS = {"optional", "override"}


def options() -> list[str]:
    """Every `group=option`, from the source that Hydra itself lists."""
    register()
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        groups = [*loader.list_groups(""), *(f"algo/{part}" for part in loader.list_groups("algo"))]
        return [
            f"{group}={name}" for group in groups for name in loader.get_group_options(group) if group not in NO_OPTIONS
        ]


def experiments() -> list[str]:
    return [f"experiment={path.stem}" for path in sorted((CONF / "experiment").glob("*.yaml"))]


def composed(*overrides: str) -> schema.Config:
    return load(precompose(CONF, "config", overrides))


def rounds() -> list[list[str]]:
    """All options, each in one round, and in a round one of each group: a composition takes half a second.

    Those that set values of other groups are alone.
    """
    alone = [*(option for option in options() if option.startswith(("algo=", "engine="))), *experiments()]
    groups: dict[str, list[str]] = {}
    for option in options():
        if option not in alone:
            groups.setdefault(option.partition("=")[0], []).append(option)
    together = [[option for option in one if option] for one in zip_longest(*groups.values())]
    return [*together, *([option] for option in alone)]


@pytest.mark.parametrize("chosen", rounds(), ids=lambda chosen: ",".join(chosen)[:60])
def test_every_option_composes(chosen: list[str]) -> None:
    has_experiment = any(option.startswith("experiment=") for option in chosen)
    data = [option for option in chosen if option.startswith(("data=", "experiment=swe_"))]
    path = ["data.path=rows.jsonl"] if data and "data=toy" not in data else []
    config = composed(*([] if has_experiment else ["experiment=none"]), *chosen, *path)
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
    assert type(composed("job=sft").algo.loss).__name__ == "SftConfig"
    assert type(composed("job=train").algo.loss).__name__ == "PpoClipConfig"


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
        (["~grader"], "group `grader` has no option chosen"),
        (["harness=null"], "no option `null`"),
        (["algo.lr=abc"], "'abc'.*could not be converted to Float"),
        (["harness.prompt=a=b"], r"Quote values with special characters .* twice"),
        (["harness.prompt={x}"], r"Quote values with special characters .* twice"),
        (["model=qwen3_4b", "job=sft"], "experiment=none"),
        (["algo.lr=1e-4,nonsense", "harness=codx"], "Did you mean `codex`"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        composed(*overrides)


def test_an_experiments_values_are_for_its_model() -> None:
    assert "experiment" in {problem.where for problem in check(composed("model=qwen3_4b"))}


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


def test_an_option_without_a_file_is_called_like_its_module() -> None:
    for group in SCANNED:
        for name in (option.partition("=")[2] for option in options() if option.startswith(f"{group}=")):
            kind = option_class(group, name)
            if kind is not None and name != "none":  # NoCorrection, NoKl
                assert kind.__module__.rpartition(".")[2] == name
                assert kind.__name__.lower() == name.replace("_", "") + "config"


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, names in DECLARED.items() for name in names])
def test_a_declared_option_is_a_dataclass_of_its_groups_base(group: str, name: str) -> None:
    kind = option_class(group, name)
    base = locate(f"rl_agent.config.schema.{ {field.name: field for field in fields(schema.Config)}[group].type }")
    assert kind is not None
    assert issubclass(kind, base)


@pytest.mark.parametrize("option", RENAMED)
def test_an_old_name_is_an_error_that_tells_the_new_one(option: str) -> None:
    with pytest.raises(ConfigError, match=rf"renamed\. Use \S+={RENAMED[option]}\."):
        composed(option)
    composed("experiment=none", f"{option.partition('=')[0]}={RENAMED[option]}")


def test_a_saved_config_names_the_class_of_every_plug_in() -> None:
    plain = OmegaConf.to_container(precompose(CONF, "config", []), resolve=True)
    config = composed()
    for group in (field.name for field in fields(schema.Config)):
        node = getattr(config, group)
        if isinstance(node, PlugInConfig):
            assert locate(plain[group]["_target_"]) is type(node)


def test_a_file_elsewhere_is_typed_by_the_class_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "harness").mkdir()
    mine = tmp_path / "harness" / "mine.yaml"
    mine.write_text("_target_: rl_agent.harnesses.codex.CodexConfig\ntools: [exec_command]\ntime_budget_s: 7\n")
    for given, folder in (
        (["harness=mine"], str(tmp_path)),
        ([f"hydra.searchpath=[file://{tmp_path}]", "harness=mine"], None),
    ):
        config = load(precompose(CONF, "config", given, folder))
        assert (config.harness.time_budget_s, type(config.harness).__name__) == (60, "CodexConfig")  # the experiment's
        with pytest.raises(ConfigError, match=r"Did you mean `harness.time_budget_s`"):
            precompose(CONF, "config", [*given, "harness.time_budget=1"], folder)
    mine.write_text("_target_: rl_agent.harnesses.codex.CodexConfig\ntool: [exec_command]\n")
    with pytest.raises(ConfigError, match=r"unknown key `tool`.*Did you mean `tools`"):
        precompose(CONF, "config", ["harness=mine"], str(tmp_path))
    mine.write_text("_target_: rl_agent.harnesses.codex.Codex\n")
    with pytest.raises(ConfigError, match="not a plug-in config"):
        precompose(CONF, "config", ["harness=mine"], str(tmp_path))
    mine.write_text("_target_: rl_agent.config.harness.HarnessConfig\n")
    with pytest.raises(ConfigError, match="not a plug-in config"):
        precompose(CONF, "config", ["harness=mine"], str(tmp_path))
    mine.write_text("_target_: no_such_package.Mine\n")
    with pytest.raises(ConfigError, match="Install its package"):
        precompose(CONF, "config", ["harness=mine"], str(tmp_path))


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


def test_the_help_page_lists_every_option() -> None:
    done = subprocess.run([sys.executable, "-m", "rl_agent", "--help"], capture_output=True, text=True, check=True)
    for group in ("harness", "grader", "algo/loss", "sandbox", "experiment"):
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{group}:")]
        for option in options():
            if option.startswith(f"{group}="):
                assert option.partition("=")[2] in line


def test_composing_imports_no_big_library_but_torch() -> None:
    """Seconds of a processor, in each process of a run."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom rl_agent.config.check import check\n"
        "from rl_agent.config.hints import precompose\nfrom rl_agent.config.load import load\n"
        "from rl_agent.config.options import register\nfrom omegaconf import OmegaConf\n"
        "OmegaConf.register_new_resolver('rl_agent.run_dir', lambda *parts: '')\nregister()\n"
        f"check(load(precompose(Path({str(CONF)!r}), 'config', [])))\n"
        "print(sorted({'ray', 'vllm', 'megatron', 'transformers', 'wandb', 'e2b'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_building_a_renderer_does_not_wait_for_torch() -> None:
    code = (
        "import sys\nfrom pathlib import Path\nimport rl_agent\nfrom rl_agent.tokens.build import build_renderer\n"
        "build_renderer(Path(rl_agent.__file__).parent / 'embedded' / 'warm_start' / 'codex')\n"
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
