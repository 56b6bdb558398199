"""Metrics of a pass over a batch, as sums over tokens that can be added up over micro-batches and ranks.

Every micro-batch has every sum, even if it is empty, because ranks add the sums up by position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from rl_agent.algo.ratio import LOG_RATIO_LIMIT, log_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rl_agent.algo.base import LossInput, LossTerms

STALENESS: Final = {"0": (0, 0), "1": (1, 1), "2_3": (2, 3), "4_7": (4, 7), "8_up": (8, 2**31 - 1)}
"""Buckets of staleness in weight versions: first and last, inclusive."""

BY_STALENESS: Final = ("ratio", "clip_fraction", "kl_k1", "kl_k3", "entropy", "correction/rejected")
"""Metrics that are also reported per bucket, in addition to the effective sample size."""


@torch.no_grad()
def token_sums(inputs: LossInput, terms: LossTerms, entropy: Tensor) -> dict[str, Tensor]:
    """Return the sums, float64 scalars. Sums about the gap to the sampler include only tokens with a known weight version."""
    mask = inputs.loss_mask
    sums = {"tokens": mask.double().sum()}
    for name, values in {"entropy": entropy, **terms.metrics}.items():
        sums[f"of_tokens/{name}"] = _sum(values, mask)
    if inputs.staleness is None:
        return sums
    sampler = inputs.old_logprobs if inputs.rollout_logprobs is None else inputs.rollout_logprobs
    known = mask & (inputs.staleness >= 0)
    gap = inputs.logprobs - sampler
    log = log_ratio(inputs.logprobs, sampler)
    weight = log.exp()
    gaps = {"kl_k1": -log, "kl_k3": log.expm1() - log, "ratio_bounded": gap.abs() > LOG_RATIO_LIMIT}
    sums |= {f"of_known/{name}": _sum(values, known) for name, values in gaps.items()}
    weights = {"weight": weight, "weight_squared": weight**2}
    sums |= {"known": known.double().sum(), **{name: _sum(values, known) for name, values in weights.items()}}
    told = {n: values for n, values in {**terms.metrics, **gaps, "entropy": entropy}.items() if n in BY_STALENESS}
    for bucket, (first, last) in STALENESS.items():
        inside = known & (inputs.staleness >= first) & (inputs.staleness <= last)
        sums[f"bucket/{bucket}"] = inside.double().sum()
        sums |= {f"of_bucket/{bucket}/{name}": _sum(values, inside) for name, values in told.items()}
        sums |= {f"bucket_{name}/{bucket}": _sum(values, inside) for name, values in weights.items()}
    return sums


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics. Means over zero tokens are left out: missing is not zero. Buckets are reported once a token is stale."""
    tokens, known = sums["tokens"], sums.get("known", 0.0)
    found: dict[str, float] = {}
    if tokens:
        found |= {_last(name): value / tokens for name, value in sums.items() if name.startswith("of_tokens/")}
    if known:
        found |= {_last(name): value / known for name, value in sums.items() if name.startswith("of_known/")}
        if sums["weight_squared"] > 0:
            found["effective_sample_size"] = sums["weight"] ** 2 / (known * sums["weight_squared"])
    stale = any(sums.get(f"bucket/{bucket}", 0.0) for bucket in STALENESS if bucket != "0")
    for bucket in STALENESS if stale else ():
        if count := sums[f"bucket/{bucket}"]:
            found[f"staleness_{bucket}/share"] = count / known
            if squares := sums[f"bucket_weight_squared/{bucket}"]:
                of_one = sums[f"bucket_weight/{bucket}"]
                found[f"staleness_{bucket}/effective_sample_size"] = of_one**2 / (count * squares)
            begin = f"of_bucket/{bucket}/"
            found |= {
                f"staleness_{bucket}/{name.removeprefix(begin)}": value / count
                for name, value in sums.items()
                if name.startswith(begin)
            }
    return found


def _sum(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values, torch.zeros_like(values)).double().sum()


def _last(name: str) -> str:
    return name.partition("/")[2]
