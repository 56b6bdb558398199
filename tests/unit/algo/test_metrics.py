"""Metrics of a pass over a batch."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from algo_cases import loss_input

from rl_agent.algo.base import LossTerms
from rl_agent.algo.metrics import means, token_sums


def test_metrics_of_a_pass() -> None:
    # three tokens, the last not trained; ratios to the sampler 2 and 0.5: k1 = -mean(ln 2, -ln 2) = 0,
    # k3 = mean(2 - 1 - 0.6931, 0.5 - 1 + 0.6931) = 0.25; weights 2 and 0.5: (2.5)^2 / (2 * 4.25) = 0.7353
    log = math.log(2.0)
    inputs = dataclasses.replace(
        loss_input([-1.0, -2.0, -3.0], [-1.0 - log, -2.0 + log, -9.0], [1.0, 1.0, 1.0]),
        loss_mask=torch.tensor([True, True, False]),
        staleness=torch.tensor([0, 2, -1]),
    )
    terms = LossTerms(loss=torch.zeros(3), metrics={"clip_fraction": torch.tensor([True, False, True])})
    got = means(
        {name: float(value) for name, value in token_sums(inputs, terms, torch.tensor([1.0, 3.0, 9.0])).items()}
    )
    assert got["entropy"] == pytest.approx(2)
    assert got["clip_fraction"] == pytest.approx(0.5)
    assert got["kl_k1"] == pytest.approx(0, abs=1e-6)
    assert got["kl_k3"] == pytest.approx(0.25, abs=1e-6)
    assert got["effective_sample_size"] == pytest.approx(6.25 / 8.5)
    assert got["staleness_0/share"] == got["staleness_2_3/share"] == pytest.approx(0.5)
    assert got["staleness_0/clip_fraction"] == 1
    assert got["staleness_0/kl_k1"] == pytest.approx(-log)
    assert got["staleness_2_3/kl_k1"] == pytest.approx(log)
    assert (got["staleness_0/entropy"], got["staleness_2_3/entropy"]) == (1, 3)
    assert got["staleness_0/effective_sample_size"] == pytest.approx(1)  # one token is one sample, whatever its weight
    assert got["staleness_2_3/clip_fraction"] == 0
    assert "staleness_1/share" not in got
    # no token at all: no mean
    nothing = token_sums(dataclasses.replace(inputs, loss_mask=torch.zeros(3, dtype=torch.bool)), terms, torch.zeros(3))
    assert means({name: float(value) for name, value in nothing.items()}) == {}
