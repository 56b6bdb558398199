"""Parameter counts of a model shape, part by part, from `config.json` alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_agent.trainer.shape import LinearAttentionShape, ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameter counts of a model."""

    embedding: int
    """Vocabulary matrices: one if the output layer is tied to the embedding, else two."""
    experts: int
    """Routed experts of all layers."""
    rest: int
    """Attention, dense MLPs, shared experts, routers, norms."""
    active: int
    """Parameters used per token: only the chosen experts, and one vocabulary matrix."""

    @property
    def total(self) -> int:
        """Total number of parameters."""
        return self.embedding + self.experts + self.rest

    @property
    def dense(self) -> int:
        """Parameters outside the routed experts."""
        return self.embedding + self.rest


def count_parameters(shape: ModelShape) -> Parameters:
    """Count the parameters of a shape, by the layers of the Hugging Face models.

    softmax attention  H A (2 with an output gate) + 2 H K + A H (+ norms of queries and keys, + biases),  A = heads x
    d, K = key-value heads x d gated DeltaNet     H (2 Q + 2 W + 2 w) + (2 Q + W) c + 2 w + d_w + W H,  Q query size, W
    value size, w value heads, c convolution MLP                3 H F;   experts: E x 3 H F_e + H E (router), a shared
    expert 3 H F_s + H (its gate) norms              2 H, and H at the end
    """
    hidden, layers = shape.hidden, shape.layers
    embedding = shape.vocab * hidden * (1 if shape.tied else 2)
    linear_layers = sum(shape.linear.layers) if shape.linear else 0
    rest = hidden + layers * 2 * hidden + (layers - linear_layers) * _softmax(shape)
    if shape.linear:
        rest += linear_layers * _linear(shape.linear, hidden)
    if shape.experts is None:
        rest += layers * 3 * hidden * shape.ffn
        return Parameters(embedding=embedding, experts=0, rest=rest, active=rest + shape.vocab * hidden)
    one = 3 * hidden * shape.experts.ffn
    rest += layers * hidden * shape.experts.count
    if shape.experts.shared_ffn:
        rest += layers * (3 * hidden * shape.experts.shared_ffn + hidden)
    return Parameters(
        embedding=embedding,
        experts=layers * shape.experts.count * one,
        rest=rest,
        active=rest + layers * shape.experts.chosen * one + shape.vocab * hidden,
    )


def _softmax(shape: ModelShape) -> int:
    queries, keys = shape.heads * shape.head_dim, shape.groups * shape.head_dim
    count = shape.hidden * (queries * (2 if shape.output_gate else 1) + 2 * keys) + queries * shape.hidden
    if shape.qk_norm:
        count += 2 * shape.head_dim
    if shape.qkv_bias:
        count += queries + 2 * keys
    return count


def _linear(linear: LinearAttentionShape, hidden: int) -> int:
    queries, values, heads = linear.query_size, linear.value_size, linear.value_heads
    inward = hidden * (2 * queries + 2 * values + 2 * heads)
    convolution = (2 * queries + values) * linear.convolution
    return inward + convolution + 2 * heads + linear.value_dim + values * hidden
