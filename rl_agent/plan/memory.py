"""Memory estimate of one trainer GPU and one engine GPU, term by term. docs/recipes.md has the formulas.

The reserve must cover everything else: fragmentation, communication buffers and the CUDA context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rl_agent.config.trainer import Precision
from rl_agent.plan.parameters import count_parameters

if TYPE_CHECKING:
    from rl_agent.config.trainer import TrainerConfig
    from rl_agent.trainer.shape import ModelShape

GB: Final = 1e9
STATE_BYTES: Final = 4
"""Bytes per number of gated DeltaNet's recurrent state, which vLLM keeps in float32."""


@dataclass(frozen=True, slots=True)
class Term:
    """One part of the memory."""

    name: str
    arithmetic: str
    """Formula with numbers inserted."""
    gb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Networks in the trainer besides the policy."""

    frozen: int = 0
    """Number of frozen policies (reference, teacher), which have only weights."""
    critic: bool = False
    """True with a critic, which has weights, gradients and optimizer state."""


def total_gb(terms: list[Term]) -> float:
    """Return the sum of the terms."""
    return sum(term.gb for term in terms)


def trainer_memory(
    shape: ModelShape, trainer: TrainerConfig, *, longest: int, bucket_gb: float, copies: Copies
) -> list[Term]:
    """Return the memory of one trainer rank.

    `longest`: tokens of the longest segment, which may exceed `micro_batch_tokens`.
    """
    parameters = count_parameters(shape)
    bytes_each = 2 if trainer.precision is Precision.bfloat16 else 4
    tp, pp, ep = trainer.tensor_parallel, trainer.pipeline_parallel, trainer.expert_parallel
    spread = ep if ep > 1 else tp
    dense, experts = parameters.dense / tp / pp, parameters.experts / spread / pp
    own = dense + experts
    copies_of_dense = trainer.data_parallel * trainer.context_parallel
    copies_of_experts = max(1.0, copies_of_dense * tp / spread)
    if not trainer.distributed_optimizer:
        copies_of_dense, copies_of_experts = 1, 1.0
    state = 12 if trainer.precision is Precision.bfloat16 else 8
    on_gpu = 1.0 - trainer.optimizer_offload
    optimizer = state * (dense / copies_of_dense + experts / copies_of_experts) * on_gpu
    p = f"({parameters.dense:.3g} / TP{tp} + {parameters.experts:.3g} / {'EP' if ep > 1 else 'TP'}{spread}) / PP{pp}"
    terms = [
        Term("weights", f"{bytes_each} B x ({p}) = {bytes_each} B x {own:.3g}", bytes_each * own / GB),
        Term("gradients", f"4 B x {own:.3g} (float32)", 4 * own / GB),
        Term(
            "optimizer",
            f"{state} B x ({dense:.3g} / {copies_of_dense} + {experts:.3g} / {copies_of_experts:g} copies)"
            + (f" x {on_gpu:g} on the GPU" if trainer.optimizer_offload else ""),
            optimizer / GB,
        ),
    ]
    terms += _activations(shape, trainer, longest, bytes_each)
    chunk = min(trainer.output_chunk_tokens, max(trainer.micro_batch_tokens, longest))
    logits = 4 * 3 * chunk * shape.vocab / tp
    terms.append(Term("logits", f"4 B x 3 x {chunk} x {shape.vocab} / TP{tp}", logits / GB))
    if copies.frozen:
        terms.append(Term("frozen policies", f"{copies.frozen} x weights", copies.frozen * bytes_each * own / GB))
    if copies.critic:
        terms.append(
            Term("critic", "weights, gradients and optimizer once more", (bytes_each * own + 4 * own + optimizer) / GB)
        )
    largest = bytes_each * shape.vocab * shape.hidden / GB
    terms.append(
        Term(
            "a push",
            f"largest tensor {bytes_each} x {shape.vocab} x {shape.hidden}, and a bucket of {bucket_gb:g} GB",
            largest + bucket_gb,
        )
    )
    return terms


def _activations(shape: ModelShape, trainer: TrainerConfig, longest: int, bytes_each: int) -> list[Term]:
    """Return the activations: all of every layer or, with recompute, the input of every layer and the largest layer.

    A pipeline stage has 1 / PP of the layers and holds PP micro-batches at a time, so PP cancels out.
    """
    tp = trainer.tensor_parallel
    tokens = max(trainer.micro_batch_tokens, longest) / trainer.context_parallel
    split = tp if trainer.sequence_parallel else 1
    widths = layer_widths(shape, tp=tp, split=split)
    if not trainer.recompute:
        whole = bytes_each * tokens * sum(widths)
        mean = sum(widths) / len(widths)
        line = f"{bytes_each} B x {tokens:.0f} tokens x {shape.layers} layers x {mean:.0f} numbers on average"
        return [Term("activations", line, whole / GB)]
    kept = bytes_each * tokens * shape.layers * shape.hidden / split
    again = bytes_each * tokens * max(widths)
    return [
        Term(
            "kept inputs",
            f"{bytes_each} B x {tokens:.0f} tokens x {shape.layers} layers x {shape.hidden} / {split}",
            kept / GB,
        ),
        Term("one layer again", f"{bytes_each} B x {tokens:.0f} tokens x {max(widths):.0f} numbers", again / GB),
    ]


def layer_widths(shape: ModelShape, *, tp: int, split: int) -> list[float]:
    """Return how many numbers each layer keeps per token for the backward pass.

    Norms and residuals 4 H / s; attention (2 A + 2 K) / TP (with an output gate A more), or gated DeltaNet (2 (2 Q + W)
    + 3 W) / TP; MLP 3 F / TP; experts chosen (2 H + 3 F_e) / TP, since each has its copy of the token; a shared expert
    3 F_s / TP.
    """
    softmax = 2 * (shape.heads + shape.groups) * shape.head_dim + (
        shape.heads * shape.head_dim if shape.output_gate else 0
    )
    if shape.experts is None:
        mlp = 3 * shape.ffn
    else:
        shared = 3 * (shape.experts.shared_ffn or 0)
        mlp = shape.experts.chosen * (2 * shape.hidden + 3 * shape.experts.ffn) + shared
    if shape.linear is None:
        return [4 * shape.hidden / split + (softmax + mlp) / tp] * shape.layers
    linear = 2 * (2 * shape.linear.query_size + shape.linear.value_size) + 3 * shape.linear.value_size
    return [
        4 * shape.hidden / split + ((linear if is_linear else softmax) + mlp) / tp for is_linear in shape.linear.layers
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """Memory of one GPU of a policy server."""

    terms: list[Term]
    """Weights, overhead and key-value cache. A negative cache means that the weights do not fit."""
    cache_gb: float
    bytes_per_token: float
    bytes_per_sequence: float
    """Bytes of recurrent state per sequence, independent of its length; 0 without linear attention."""

    def sequences(self, tokens: int) -> float:
        """Return the number of sequences of that length that fit into the cache."""
        return max(0.0, self.cache_gb * GB / (self.bytes_per_token * tokens + self.bytes_per_sequence))


def engine_memory(
    shape: ModelShape, *, tp: int, bytes_each: int, gpu_gb: float, utilization: float, overhead_gb: float
) -> EngineMemory:
    """Return the memory of one engine GPU. Cache gets the share `utilization` minus weights and overhead."""
    weights = bytes_each * count_parameters(shape).total / tp / GB
    per_token, per_sequence = cache_bytes(shape, tp=tp, bytes_each=bytes_each)
    share = gpu_gb * utilization
    cache = share - weights - overhead_gb
    terms = [
        Term("weights", f"{bytes_each} B x {count_parameters(shape).total:.4g} / TP{tp}", weights),
        Term("overhead", "profile of the largest batch, graphs, CUDA (assumed)", overhead_gb),
        Term("key-value cache", f"{utilization:g} x {gpu_gb:g} GB - the above", cache),
    ]
    return EngineMemory(terms=terms, cache_gb=cache, bytes_per_token=per_token, bytes_per_sequence=per_sequence)


def cache_bytes(shape: ModelShape, *, tp: int, bytes_each: int) -> tuple[float, float]:
    """Return the cache bytes per token, and per sequence, on one of `tp` GPUs.

    Softmax attention keeps 2 x layers x max(key-value heads / TP, 1) x d numbers per token. Each gated DeltaNet layer
    keeps, per sequence, a state of value heads x key size x value size numbers in float32, and c - 1 inputs of its
    convolution; both are divided by TP.
    """
    linear_layers = sum(shape.linear.layers) if shape.linear else 0
    per_token = 2 * (shape.layers - linear_layers) * max(shape.groups / tp, 1.0) * shape.head_dim * bytes_each
    if shape.linear is None:
        return per_token, 0.0
    lin = shape.linear
    state = STATE_BYTES * lin.value_heads * lin.key_dim * lin.value_dim
    convolution = bytes_each * (lin.convolution - 1) * (2 * lin.query_size + lin.value_size)
    return per_token, linear_layers * (state + convolution) / tp
