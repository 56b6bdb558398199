"""Contradictions between the parts of an algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rl_agent.config.algo_parts import KlEstimator, KlPlace, Proximal
from rl_agent.config.node import get

if TYPE_CHECKING:
    from collections.abc import Iterator

_GROUP_RELATIVE: Final = ("grpo.GrpoAdvantage", "rloo.RlooAdvantage", "maxrl.MaxRlAdvantage", "opo.OpoAdvantage")
"""Advantages of which a group of one has none."""


def algo_problems(algo: Any) -> Iterator[tuple[str, str, str]]:
    """Where, what, remedy. `algo`: the node of the group."""
    advantage, loss, correction = (get(algo, name) for name in ("advantage", "loss", "correction"))
    size = get(algo, "group_size")
    estimator = str(get(advantage, "_target_"))
    if size == 1 and estimator.endswith(_GROUP_RELATIVE):
        yield (
            "algo.group_size",
            f"a group of 1 has nothing to compare, so {estimator.rpartition('.')[2]} gives no advantage.",
            "set it to at least 2, or choose algo/advantage=reinforce_plus_plus or gae",
        )
    k, greedy = get(advantage, "k"), get(advantage, "greedy_rollouts")
    if k is not None and size is not None and k > size:
        yield "algo.advantage.k", f"{k} is more than algo.group_size={size}.", "lower it, or raise the group's size"
    if greedy is not None and size is not None and not 1 <= greedy < size:
        yield (
            "algo.advantage.greedy_rollouts",
            f"{greedy} of algo.group_size={size} rollouts leave none to train, or none to compare with.",
            "set it to 1, with a group of at least 2",
        )
    if str(get(loss, "_target_")).endswith("DistillationLoss") and get(loss, "teacher") is None:
        yield "algo.loss.teacher", "there is no teacher to learn from.", "set it to a Hugging Face folder"
    kl = get(algo, "kl")
    if (
        get(kl, "place") is KlPlace.loss
        and get(kl, "estimator") is KlEstimator.k1
        and not get(kl, "importance_weighted")
    ):
        yield (
            "algo.kl.estimator",
            "k1 in the loss has no gradient in the mean: it would hold nothing back.",
            "algo.kl.estimator=k3 (or k2), algo.kl.importance_weighted=true, or algo/kl=in_reward",
        )
    corrects = not str(get(correction, "_target_")).endswith("NoCorrection")
    if corrects and get(correction, "proximal") is Proximal.rollout:
        yield (
            "algo.correction.proximal",
            "around the sampler itself there is nothing to correct.",
            "recomputed, approximated or current; or algo/correction=none",
        )
