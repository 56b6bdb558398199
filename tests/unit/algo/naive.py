"""Reference losses, token by token in float64, as in the papers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

Scalar = Any
"""A float64 tensor without dimensions."""


def clip(x: Scalar, low: float, high: float) -> Scalar:
    return torch.minimum(torch.maximum(x, torch.tensor(low)), torch.tensor(high))


def clipped(r: Scalar, a: float, low: float, high: float) -> Scalar:
    return torch.maximum(-a * r, -a * clip(r, 1 - low, 1 + high))


def ppo_clip(p: Scalar, q: float, a: float, **_: Any) -> Scalar:
    return clipped(torch.exp(p - q), a, 0.2, 0.28)


def dual_clip(p: Scalar, q: float, a: float, **_: Any) -> Scalar:
    loss = clipped(torch.exp(p - q), a, 0.2, 0.2)
    return torch.minimum(loss, torch.tensor(-a * 3.0)) if a < 0 else loss


def cispo(p: Scalar, q: float, a: float, **_: Any) -> Scalar:
    weight = min(max(math.exp(p.item() - q), 0.0), 5.0)
    return -weight * a * p


def sapo(p: Scalar, q: float, a: float, **_: Any) -> Scalar:
    tau = 1.0 if a > 0 else 1.05
    return -a * 4 / tau / (1 + torch.exp(-tau * (torch.exp(p - q) - 1)))


def dppo(p: Scalar, q: float, a: float, **_: Any) -> Scalar:
    moved = math.exp(p.item()) - math.exp(q)
    if (a > 0 and moved > 0.15) or (a < 0 and moved < -0.15):
        return 0.0 * p
    return -a * torch.exp(p - q)


def dppo_kl(p: Scalar, q: float, a: float, **_: Any) -> Scalar:
    new, old = math.exp(p.item()), math.exp(q)
    apart = old * math.log(old / new) + (1 - old) * math.log((1 - old) / (1 - new))
    if apart > 0.05 and ((a > 0 and new > old) or (a < 0 and new < old)):
        return 0.0 * p
    return -a * torch.exp(p - q)


def clip_cov(p: Scalar, q: float, a: float, *, marked: bool, **_: Any) -> Scalar:
    loss = clipped(torch.exp(p - q), a, 0.2, 0.2)
    return loss.detach() + 0.0 * p if marked else loss


def kl_cov(p: Scalar, q: float, a: float, *, marked: bool, **_: Any) -> Scalar:
    return -a * torch.exp(p - q) + (torch.abs(p - q) if marked else 0.0)


def reinforce(p: Scalar, q: float, a: float, **_: Any) -> Scalar:
    return -a * p


def dro(p: Scalar, q: float, a: float, **_: Any) -> Scalar:
    return -(p * a - 0.05 / 2 * (p - q) ** 2)


def sft(p: Scalar, q: float, a: float, **_: Any) -> Scalar:
    return -a * p


def distillation(p: Scalar, q: float, a: float, *, teacher: float, **_: Any) -> Scalar:
    return -(teacher - p.item()) * torch.exp(p - q)


TOKEN = {
    f.__name__: f
    for f in (
        ppo_clip,
        dual_clip,
        cispo,
        sapo,
        dppo,
        dppo_kl,
        clip_cov,
        kl_cov,
        reinforce,
        dro,
        sft,
        distillation,
    )
}
"""Option -> loss of one token: log-probability p, old one q, advantage a."""


def gspo(ps: Sequence[Scalar], qs: Sequence[float], a: Sequence[float]) -> list[Scalar]:
    ratio = torch.exp(sum(p - q for p, q in zip(ps, qs, strict=True)) / len(ps))
    return [clipped(ratio, own, 3e-4, 4e-4) for own in a]


def gspo_token(ps: Sequence[Scalar], qs: Sequence[float], a: Sequence[float]) -> list[Scalar]:
    ratio = math.exp(sum(p.item() - q for p, q in zip(ps, qs, strict=True)) / len(ps))
    return [clipped(ratio * p.exp() / p.detach().exp(), own, 3e-4, 4e-4) for p, own in zip(ps, a, strict=True)]


def geometric_mean(ps: Sequence[Scalar], qs: Sequence[float], a: Sequence[float]) -> list[Scalar]:
    logs = []
    for p, q, own in zip(ps, qs, a, strict=True):
        logs.append(clip(p - q, -math.inf, 0.4) if own > 0 else clip(p - q, -0.4, math.inf))
    ratio = torch.exp(sum(logs) / len(logs))
    return [-own * ratio for own in a]


SEQUENCE = {f.__name__: f for f in (gspo, gspo_token, geometric_mean)}
"""Option -> losses of the trained tokens of one sequence."""


def kl(p: Scalar, reference: float, estimator: str) -> Scalar:
    r = reference - p
    return {"k1": -r, "k2": r**2 / 2, "k3": torch.exp(r) - r - 1, "absolute": torch.abs(r)}[estimator]
