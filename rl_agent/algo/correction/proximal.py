"""The proximal policy without a forward pass: between the sampler and the current policy, in the log.

(AReaL's `prox_approx`, a log-linear interpolation by weight version)

    log p_proximal = log p_sampler + a * (log p - log p_sampler)        a = (v_proximal - v_sampler) / (v - v_sampler)

v counts weight versions: the update that is being made leads from v_proximal to v = v_proximal + 1. Worked: sampled 2 versions
before the trainer's: a = 2 / 3; a fresh token: a = 0, the sampler is the proximal policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def approximated(logprobs: Tensor, rollout_logprobs: Tensor, staleness: Tensor) -> Tensor:
    """[t] float32 log-probabilities (no gradient flows), [t] int32 versions that the token lags behind -> [t] float32."""
    lag = staleness.clamp(min=0).to(logprobs.dtype)
    return rollout_logprobs + lag / (lag + 1.0) * (logprobs.detach() - rollout_logprobs)
