"""Reading vLLM's answers: exactly, quickly, and never half."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from rl_agent.engine.vllm_answer import UNVERSIONED, read_generation
from rl_agent.errors import EngineError
from rl_agent.tokens.turn import FinishReason

if TYPE_CHECKING:
    from collections.abc import Callable


def answer(count: int, **changes: Any) -> bytes:
    """As vLLM writes it, with what we do not use."""
    ids = list(range(100_000, 100_000 + count))
    content = [
        {
            "token": f"token_id:{i}",
            "token_id": i,
            "logprob": -1.9345355033874512,
            "rank": 2,
            "bytes": None,
            "top_logprobs": [{"token_id": i, "logprob": -1.9345355033874512, "rank": 2}],
        }
        for i in ids
    ]
    choice = {
        "index": 0,
        "token_ids": ids,
        "finish_reason": "stop",
        "logprobs": {"content": content},
        "weight_versions": [{"version": "default", "start": 0, "end": count}],
        **changes,
    }
    usage = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}
    return orjson.dumps({"request_id": "r", "choices": [choice], "usage": usage})


def test_all_that_is_used_is_read() -> None:
    got = read_generation(answer(3), "r", 0.5)
    assert got.tokens.tolist() == [100_000, 100_001, 100_002]
    assert got.logprobs.tolist() == pytest.approx([-1.9345355033874512] * 3)
    assert got.weight_versions().tolist() == [UNVERSIONED] * 3
    assert (got.finish_reason, got.cached_tokens, got.seconds) == (FinishReason.STOP, 4, 0.5)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"[]",
        b'{"choices": []}',
        answer(1, finish_reason="tired"),
        answer(1, token_ids=["a"]),
        answer(1, token_ids=[2**40]),
        answer(1, logprobs={"content": [{"token_id": 100_000}]}),
        answer(1, logprobs={"content": [{"token_id": 100_000, "logprob": None}]}),
        answer(1, logprobs={"content": [{"token_id": 100_000, "logprob": 1}]}).replace(b":1}", b":NaN}"),
        answer(1, weight_versions=[{"version": "three", "start": 0, "end": 1}]),
    ],
)
def test_another_form_is_an_engine_error_that_shows_it(content: bytes) -> None:
    with pytest.raises(EngineError, match="r-0: invalid response from vLLM") as caught:
        read_generation(content, "r-0", 0.0)
    assert content[:100].decode() in str(caught.value)


def test_a_long_answer_is_read_in_a_fraction_of_the_time_of_all_of_it() -> None:
    content = answer(16_384)
    assert fastest(lambda: read_generation(content, "r", 0.0)) < fastest(lambda: orjson.loads(content)) / 2


def fastest(work: Callable[[], object]) -> float:
    """In processor time of this thread."""
    times = []
    for _ in range(5):
        started = time.thread_time()
        work()
        times.append(time.thread_time() - started)
    return min(times)
