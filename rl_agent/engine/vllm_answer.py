"""Decoder of vLLM's generation responses. It reads only the needed fields of each token.

A response of 32,000 tokens is 5 MB of JSON, and decoding blocks the process. Skipping fields saves 90 % of the time.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from rl_agent.errors import EngineError, LawError
from rl_agent.tokens.turn import FinishReason, Generation, VersionSpan

UNVERSIONED: Final = 0
"""Version of the weights with which the server started."""


# `gc=False`: so many small objects would trigger the garbage collector again and again
class _Token(msgspec.Struct, gc=False):
    token_id: int
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Span(msgspec.Struct):
    version: str
    start: int
    end: int


class _Choice(msgspec.Struct):
    token_ids: list[int]
    finish_reason: FinishReason
    logprobs: _Logprobs | None
    weight_versions: list[_Span] | None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens_details: _PromptDetails | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


_DECODER: Final = msgspec.json.Decoder(_Answer)


def read_generation(content: bytes, request_id: str, seconds: float) -> Generation:
    """Decode a response. Raises EngineError for an invalid response, LawError for missing or miscounted values."""
    try:
        answer = _DECODER.decode(content)
        choice = answer.choices[0]
        spans = tuple(
            VersionSpan(version=_version(span.version), start=span.start, end=span.end)
            for span in choice.weight_versions or ()
        )
        ids = np.array(choice.token_ids, dtype=np.int32)
    except (msgspec.DecodeError, IndexError, ValueError, OverflowError) as error:
        shown = content[:300].decode(errors="replace")
        raise EngineError(f"{request_id}: invalid response from vLLM ({error!r}): {shown}") from error
    entries = (choice.logprobs.content if choice.logprobs else None) or []
    if [entry.token_id for entry in entries] != choice.token_ids:
        raise LawError(f"vLLM sampled {len(ids)} tokens but returned log-probabilities of {len(entries)} or others")
    details = answer.usage.prompt_tokens_details if answer.usage else None
    return Generation(
        tokens=ids,
        logprobs=np.array([entry.logprob for entry in entries], dtype=np.float32),
        finish_reason=choice.finish_reason,
        spans=spans,
        cached_tokens=details.cached_tokens if details else None,
        seconds=seconds,
    )


def _version(label: str) -> int:
    return UNVERSIONED if label == "default" else int(label)
