"""Weights in and out in Hugging Face's layout, and agreement with transformers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from trainer_cases import TINY, gradients, grpo, random_batch, segments, trainer, weights

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainer_process

HYBRID = {
    "num_hidden_layers": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_conv_kernel_dim": 4,
    "initializer_range": 0.1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
    "rope_theta": None,
}
SHAPES = {
    "hybrid": TINY | HYBRID | {"model_type": "qwen3_5_text", "tie_word_embeddings": False},
    "hybrid with experts": TINY
    | HYBRID
    | {
        "model_type": "qwen3_5_moe_text",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 40,
    },
    "qwen3 tied": TINY,
    "qwen3 untied": TINY | {"tie_word_embeddings": False},
    "qwen2": TINY | {"model_type": "qwen2", "head_dim": 16, "architectures": ["Qwen2ForCausalLM"]},
    "llama": TINY
    | {"model_type": "llama", "head_dim": 16, "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False},
    "qwen3 with experts": TINY
    | {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "norm_topk_prob": True,
    },
    "qwen3 with experts of which the weights do not sum to one": TINY
    | {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "norm_topk_prob": False,
        "tie_word_embeddings": False,
    },
    "llama with scaled positions": TINY
    | {
        "model_type": "llama",
        "head_dim": 16,
        "architectures": ["LlamaForCausalLM"],
        "rope_theta": None,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
}


def transformers_model(folder: Path, shape: dict[str, Any]) -> Any:
    """A random model, saved where the trainer can read it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(3)
    fields = {k: v for k, v in shape.items() if k not in ("model_type", "architectures") and v is not None}
    config = AutoConfig.for_model(shape["model_type"], **fields)
    config._experts_implementation = "eager"  # the other one has no float64
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases too must be told apart
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return model


def transformers_scores(model: Any, tokens: np.ndarray) -> np.ndarray:
    import torch

    ids = torch.from_numpy(tokens.astype(np.int64))
    with torch.no_grad():
        logprobs = model(input_ids=ids[None]).logits[0, :-1].log_softmax(-1)
    return logprobs.gather(-1, ids[1:, None])[:, 0].numpy()


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_agree_with_transformers_and_the_weights_come_back_bit_for_bit(tmp_path: Path, shape: str) -> None:
    from rl_agent.weights.safetensors_folder import TensorFolder

    model = transformers_model(tmp_path / "model", SHAPES[shape])
    sequences = [s for s in segments(random_batch(lengths=(60, 11, 3))) if len(s)]
    with trainer(tmp_path / "model", grpo()) as one:
        for tokens, scores in zip(sequences, one.logprobs(sequences), strict=True):
            np.testing.assert_allclose(scores, transformers_scores(model, tokens), atol=2e-5)
        one.export(tmp_path / "export")
    before, after = TensorFolder(tmp_path / "model"), TensorFolder(tmp_path / "export")
    assert sorted(before) == sorted(after)
    assert all(before[name].equal(after[name]) for name in before)
    assert (tmp_path / "export" / "config.json").read_bytes() == (tmp_path / "model" / "config.json").read_bytes()


def transformers_gradients(model: Any) -> dict[str, Any]:
    """By the names under which weights are published: transformers keeps all experts of a layer in one tensor."""
    found = {}
    for name, parameter in model.named_parameters():
        place, _, fused = name.partition(".experts.")
        if fused == "gate_up_proj":
            for expert, gradient in enumerate(parameter.grad):
                gate, up = gradient.chunk(2)
                found[f"{place}.experts.{expert}.gate_proj.weight"] = gate
                found[f"{place}.experts.{expert}.up_proj.weight"] = up
        elif fused == "down_proj":
            found |= {f"{place}.experts.{n}.down_proj.weight": g for n, g in enumerate(parameter.grad)}
        else:
            found[name] = parameter.grad
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gradient_is_that_of_a_naive_float64_loss(tmp_path: Path, shape: str) -> None:
    import torch

    model = transformers_model(tmp_path / "model", SHAPES[shape]).double()
    batch, algorithm = random_batch(), grpo(lr=0.0)
    advantages, token_weights = algorithm.advantages(batch), algorithm.weights(batch)
    total = torch.zeros((), dtype=torch.float64)
    for start, size in zip(batch.segment_starts(), batch.segment_lengths, strict=True):
        ids = torch.from_numpy(batch.tokens[start : start + size].astype(np.int64))
        logprobs = model(input_ids=ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
        for place, logprob in enumerate(logprobs, start=start + 1):
            if batch.loss_mask[place]:
                ratio = (logprob - float(batch.rollout_logprobs[place])).exp()
                advantage = float(advantages[place])
                free, clipped = -advantage * ratio, -advantage * ratio.clamp(0.8, 1.28)
                total = total + float(token_weights[place]) * torch.maximum(free, clipped)
    total.backward()
    expected = transformers_gradients(model)
    norm = sum(float((g**2).sum()) for g in expected.values()) ** 0.5
    with trainer(tmp_path / "model", algorithm, grad_clip=0.0) as one:
        metrics = one.step(batch).metrics
        assert metrics["train/loss"] == pytest.approx(total.item(), abs=1e-5)
        assert metrics["train/grad_norm"] == pytest.approx(norm, rel=1e-4)
        found = gradients(one)
    assert sorted(found) == sorted(expected)
    for name, gradient in found.items():
        difference = float(torch.linalg.norm(gradient.double() - expected[name]))
        assert difference <= 1e-4 * float(torch.linalg.norm(expected[name])), name


def test_what_stands_beside_the_language_model_is_kept_as_it_was(tmp_path: Path) -> None:
    """Checkpoints of models that see have other names, a config within the config, and weights that are not trained."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    model = transformers_model(folder, SHAPES["hybrid"])
    tensors = {
        name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    tensors["model.visual.patch_embed.weight"] = torch.randn(3, 3)
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_5", "text_config": config}))
    tokens = random_batch().tokens[:20]
    with trainer(folder, grpo()) as one:
        (scores,) = one.logprobs([tokens])
        one.export(tmp_path / "export")
    np.testing.assert_allclose(scores, transformers_scores(model, tokens), atol=2e-5)
    exported = load_file(tmp_path / "export" / "model.safetensors")
    assert sorted(exported) == sorted(tensors)
    assert all(exported[name].equal(tensors[name]) for name in tensors)


def _damage(folder: Path, kind: str) -> str:
    """Returns the name that the error must mention."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.self_attn.k_proj.weight"
    if kind == "missing":
        del tensors[name]
    elif kind == "misshapen":
        tensors[name] = tensors[name][:-1].contiguous()
    else:
        name = "model.layers.2.mlp.up_proj.weight"
        tensors[name] = tensors["model.layers.1.mlp.up_proj.weight"].clone()
    save_file(tensors, folder / "model.safetensors")
    return name


@pytest.mark.parametrize("kind", ["missing", "misshapen", "extra"])
def test_weights_that_do_not_fit_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "model"
    transformers_model(folder, TINY)
    name = _damage(folder, kind)
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")), trainer(folder, grpo()):
        pass
    with trainer(transformers_folder(tmp_path / "whole"), grpo()):  # the failed one has left its process group
        pass


def transformers_folder(folder: Path) -> Path:
    transformers_model(folder, TINY)
    return folder


@pytest.mark.parametrize(
    ("field", "value"),
    [("model_type", "gpt2"), ("hidden_act", "gelu"), ("rope_scaling", {"rope_type": "yarn"}), ("attention_bias", True)],
)
def test_a_model_that_megatron_would_compute_differently_is_refused(tiny_model: Path, field: str, value: Any) -> None:
    (tiny_model / "config.json").write_text(json.dumps(TINY | {field: value}))
    with pytest.raises(ConfigError, match=r"config\.json"), trainer(tiny_model, grpo()):
        pass


def test_random_weights_follow_the_seed_and_hugging_faces_rule(tiny_model: Path) -> None:
    with trainer(tiny_model, grpo()) as one:
        first = weights(one)
    with trainer(tiny_model, grpo()) as one:
        second = weights(one)
    assert all(first[name].equal(second[name]) for name in first)
    assert float(first["model.embed_tokens.weight"].std()) == pytest.approx(TINY["initializer_range"], rel=0.05)
    assert set(first["model.norm.weight"].tolist()) == {1.0}
