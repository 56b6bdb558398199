"""At least three cases worked by hand for every loss: `(ratio, advantage) -> (loss, gradient)`, each derived where it stands.

The current probability is 0.5 (log -0.6931) at every token, the old one 0.5 / ratio. All tokens of a case are one segment.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from algo_cases import loss_input

from rl_agent.algo.advantage.value_loss import value_loss
from rl_agent.algo.loss.cispo import CispoLoss
from rl_agent.algo.loss.clip_cov import ClipCovLoss
from rl_agent.algo.loss.dppo import DppoLoss
from rl_agent.algo.loss.dro import DroLoss
from rl_agent.algo.loss.dual_clip import DualClipLoss
from rl_agent.algo.loss.geometric_mean import GeometricMeanLoss
from rl_agent.algo.loss.gspo import GspoLoss
from rl_agent.algo.loss.kl_cov import KlCovLoss
from rl_agent.algo.loss.ppo_clip import PpoClipLoss, clipped_surrogate
from rl_agent.algo.loss.reinforce import ReinforceLoss
from rl_agent.algo.loss.sapo import SapoLoss
from rl_agent.algo.loss.sft import SftLoss
from rl_agent.algo.ratio import likelihood_loss
from rl_agent.config.algo_loss import Divergence, RatioLevel

if TYPE_CHECKING:
    from rl_agent.algo.base import TokenLoss

LOG_HALF = math.log(0.5)


def found(
    loss: TokenLoss, ratios: list[float], advantages: list[float], **more: Any
) -> tuple[list[float], list[float]]:
    """Losses and gradients by the current log-probabilities."""
    current = torch.full((len(ratios),), LOG_HALF, dtype=torch.float64, requires_grad=True)
    old = current.detach() - torch.tensor(ratios, dtype=torch.float64).log()
    inputs = loss_input(current, old, torch.tensor(advantages, dtype=torch.float64))
    terms = loss(dataclasses.replace(inputs, **more))
    terms.loss.sum().backward()
    assert current.grad is not None
    return terms.loss.tolist(), current.grad.tolist()


def close(values: list[float]) -> Any:
    return pytest.approx(values, abs=1e-4)


def test_ppo_clip() -> None:
    # bounds 0.7 and 1.3. A = 2: r = 1.2 free: -2.4; r = 1.5 at 1.3: -2.6, no gradient; r = 0.5: free, -1
    # A = -1: r = 1.5 free: 1.5; r = 0.5 at 0.7: 0.7, no gradient
    loss, gradient = found(PpoClipLoss(clip_low=0.3, clip_high=0.3), [1.2, 1.5, 0.5, 1.5, 0.5], [2, 2, 2, -1, -1])
    assert loss == close([-2.4, -2.6, -1, 1.5, 0.7])
    assert gradient == close([-2.4, 0, -1, 1.5, 0])


def test_the_clipped_surrogate_of_any_log_ratio() -> None:
    log = torch.tensor([0.0, math.log(2.0), 50.0, -50.0], requires_grad=True)
    terms = clipped_surrogate(log, torch.tensor([1.0, -1.0, -1.0, 1.0]), 0.2, 0.2)
    # 1: -1; 2 with A < 0 is free: 2; beyond e^20 the ratio stands still: e^20 with A < 0, e^-20 with A > 0, no gradient
    assert terms.loss.tolist() == pytest.approx([-1, 2, math.exp(20), -math.exp(-20)], rel=1e-5)
    terms.loss.sum().backward()
    assert log.grad is not None
    assert log.grad.tolist() == close([-1, 2, 0, 0])


def test_dual_clip() -> None:
    # A = -2, c = 3: r = 2: 4 below the bound of 6; r = 4: 8 bounded by 6, no gradient; r = 0.5 at 0.8: 1.6
    # A = 2, r = 4: PPO's -2 * 1.2, whatever c is
    dual = DualClipLoss(clip_low=0.2, clip_high=0.2, clip_bad=3.0)
    loss, gradient = found(dual, [2, 4, 0.5, 4], [-2, -2, -2, 2])
    assert loss == close([4, 6, 1.6, -2.4])
    assert gradient == close([4, 0, 0, 0])


def test_reinforce() -> None:
    # -A log p with log p = -0.6931, whatever the ratio: A = 1: 0.6931; A = -2: -1.3863; A = 0: nothing
    loss, gradient = found(ReinforceLoss(), [1, 3, 0.2], [1, -2, 0])
    assert loss == close([0.6931, -1.3863, 0])
    assert gradient == close([-1, 2, 0])


def test_sft() -> None:
    # the same, by likelihood alone
    loss, gradient = found(SftLoss(), [1, 3, 0.2], [1, 2, 0])
    assert loss == close([0.6931, 1.3863, 0])
    assert gradient == close([-1, -2, 0])


def test_the_likelihood_loss_stands_still_below_the_floor() -> None:
    # -2 * -3 = 6; an impossible token: -1 * -10,000, without gradient; a factor of 0: nothing
    logprobs = torch.tensor([-3.0, -math.inf, -math.inf], requires_grad=True)
    loss = likelihood_loss(logprobs, torch.tensor([2.0, 1.0, 0.0]))
    loss.sum().backward()
    assert loss.tolist() == [6, 10_000, 0]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [-2, 0, 0]


def test_gspo() -> None:
    # ratios 2, 2, 0.5, 1: s = (2 * 2 * 0.5 * 1)^(1/4) = 2^(1/4) = 1.1892, within 1.3
    gspo = GspoLoss(clip_low=0.3, clip_high=0.3, level=RatioLevel.sequence)
    loss, gradient = found(gspo, [2, 2, 0.5, 1], [1, 1, 1, 1])
    assert loss == close([-1.1892] * 4)
    assert gradient == close([-1.1892] * 4)  # 4 tokens, each with a quarter of every token's
    # s = sqrt(2 * 1) = 1.4142, bounded for A > 0: -1.3, no gradient; A = -1 is free: 1.4142, half of which at each of the two
    loss, gradient = found(gspo, [2, 1], [1, -1])
    assert loss == close([-1.3, 1.4142])
    assert gradient == close([0.7071, 0.7071])
    # s = sqrt(0.25 * 1) = 0.5: A > 0 free: -0.5; A < 0 at 0.7, no gradient
    loss, gradient = found(gspo, [0.25, 1], [1, -1])
    assert loss == close([-0.5, 0.7])
    assert gradient == close([-0.25, -0.25])


def test_gspo_of_tokens() -> None:
    # the sequence's values, but each token's gradient is its own: -A s where the free term holds
    gspo = GspoLoss(clip_low=0.3, clip_high=0.3, level=RatioLevel.token)
    loss, gradient = found(gspo, [2, 2, 0.5, 1], [1, 1, 1, 1])
    assert loss == close([-1.1892] * 4)
    assert gradient == close([-1.1892] * 4)
    loss, gradient = found(gspo, [2, 1], [1, -1])
    assert loss == close([-1.3, 1.4142])
    assert gradient == close([0, 1.4142])
    loss, gradient = found(gspo, [0.25, 1], [1, -1])
    assert loss == close([-0.5, 0.7])
    assert gradient == close([-0.5, 0])


def test_geometric_mean() -> None:
    # A > 0: ln 2 bounded by 0.4, ln 0.5 = -0.6931 free: mean -0.1466, e^ = 0.8637; half a gradient each, none at the bounded one
    gmpo = GeometricMeanLoss(clip_low=0.4, clip_high=0.4)
    loss, gradient = found(gmpo, [2, 0.5], [1, 1])
    assert loss == close([-0.8637] * 2)
    assert gradient == close([0, -0.8637])
    # A < 0: ln 2 free, ln 0.5 bounded by -0.4: mean 0.1466, e^ = 1.1578
    loss, gradient = found(gmpo, [2, 0.5], [-1, -1])
    assert loss == close([1.1578] * 2)
    assert gradient == close([1.1578, 0])
    # one token within the bounds is PPO's: -3 * 1.1
    loss, gradient = found(gmpo, [1.1], [3])
    assert loss == close([-3.3])
    assert gradient == close([-3.3])


def test_cispo() -> None:
    # weight bounded to 0.8 ... 1.2; loss -w A log p, gradient -w A
    cispo = CispoLoss(clip_low=0.2, clip_high=0.2)
    loss, gradient = found(cispo, [1.1, 2, 0.5], [1, 2, -1])
    assert loss == close([1.1 * 0.693147, 2.4 * 0.693147, -0.8 * 0.693147])
    assert gradient == close([-1.1, -2.4, 0.8])


def test_sapo() -> None:
    # tau 1: -A * 4 * sigmoid(r - 1); gradient -A * 4 s (1 - s) r. s(0) = 0.5, s(-0.5) = 0.3775
    # tau 2, A = -1: 2 * sigmoid(2 (r - 1)); r = 1.5: s(1) = 0.7311, gradient 4 * 0.1966 * 1.5
    sapo = SapoLoss(tau_good=1.0, tau_bad=2.0)
    loss, gradient = found(sapo, [1, 0.5, 1.5], [1, 2, -1])
    assert loss == close([-2, -8 * 0.377541, 2 * 0.731059])
    assert gradient == close([-1, -8 * 0.377541 * 0.622459 * 0.5, 4 * 0.731059 * 0.268941 * 1.5])


def test_dppo() -> None:
    # p = 0.5. Total variation, limit 0.2: q = 0.25 (r = 2) is 0.25 away: dropped with A > 0, kept with A < 0: 2
    # q = 0.4 (r = 1.25): 0.1 away, kept: -1.25; q = 1 (r = 0.5): 0.5 away, dropped with A < 0, kept with A > 0: -0.5
    tv = DppoLoss(divergence=Divergence.tv, limit_low=0.2, limit_high=0.2, tau=0.0)
    loss, gradient = found(tv, [2, 2, 1.25, 0.5, 0.5], [1, -1, 1, -1, 1])
    assert loss == close([0, 2, -1.25, 0, -0.5])
    assert gradient == close([0, 2, -1.25, 0, -0.5])
    # with tau = 0.5 the dropped token is pulled back: 0.5 * ln(2)^2 = 0.2402, gradient ln 2
    pulled = dataclasses.replace(tv, tau=0.5)
    loss, gradient = found(pulled, [2, 1], [1, 1])
    assert loss == close([0.2402, -1])
    assert gradient == close([0.6931, -1])


def test_dro() -> None:
    # -A log p + beta / 2 * log(r)^2; gradient -A + beta log r. beta = 2: A = 1, r = 1: 0.6931; r = 2: 0.6931 + 0.4805
    loss, gradient = found(DroLoss(beta=2.0), [1, 2, 0.5], [1, 1, 0])
    assert loss == close([0.6931, 0.6931 + 0.4805, 0.4805])
    assert gradient == close([-1, -1 + 1.3863, -1.3863])
    # without the pull it is REINFORCE
    loss, gradient = found(DroLoss(beta=0.0), [3, 3], [1, -2])
    assert loss == close([0.6931, -1.3863])
    assert gradient == close([-1, 2])


def test_kl_cov() -> None:
    # -A r, and at marked tokens + c |log r|: gradient -A r + c sign(log r). c = 2: r = 2: -2 + 1.3863; r = 0.5: -0.5 + 1.3863
    loss, gradient = found(
        KlCovLoss(share=0.5, coefficient=2.0), [2, 0.5, 2], [1, 1, 1], marked=torch.tensor([True, True, False])
    )
    assert loss == close([-0.6137, 0.8863, -2])
    assert gradient == close([0, -2.5, -2])


def test_clip_cov() -> None:
    # PPO's values; marked tokens have no gradient: r = 1.1: -1.1; r = 1.5 at 1.2; r = 0.5 with A < 0 at 0.8
    cov = ClipCovLoss(clip_low=0.2, clip_high=0.2, share=0.1, covariance_low=0.0, covariance_high=1.0)
    loss, gradient = found(cov, [1.1, 1.1, 1.5, 0.5], [1, 1, 1, -1], marked=torch.tensor([True, False, False, False]))
    assert loss == close([-1.1, -1.1, -1.2, 0.8])
    assert gradient == close([0, -1.1, 0, 0])


def test_value_loss() -> None:
    # (V - R)^2 / 2: (1 - 2)^2 / 2; (0 - 0)^2 / 2; (3 - 1)^2 / 2
    values, targets = torch.tensor([1.0, 0.0, 3.0]), torch.tensor([2.0, 0.0, 1.0])
    assert value_loss(values, values, targets, None).tolist() == close([0.5, 0, 2])
    # clipped to V_old +- 0.5: V_old = 0: 0.5, so (0.5 - 2)^2 / 2 is the larger; V_old = 0: inside; V_old = 3.2: inside
    old = torch.tensor([0.0, 0.0, 3.2])
    assert value_loss(values, old, targets, 0.5).tolist() == close([1.125, 0, 2])
    # V_old = 1, V = 3, R = 3: free 0, clipped to 1.5: 1.125
    assert value_loss(torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([3.0]), 0.5).tolist() == close([1.125])
