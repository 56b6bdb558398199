"""Neutralization of control tokens in untrusted text: a file that contains `<|im_end|>` must not end a turn.

A mark is inserted into each control token in such text. The mark passes through the chat template unchanged. The
tokenizer encodes the pieces between the marks separately, so that no control token can form. Text without control
tokens and its tokens stay unchanged.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_TAG: Final = re.compile(r"<[^\s<>]+>|<\|[^<>]*\|>|\[/?[A-Z_]+\]")
"""Added tokens of this form steer a model even if its tokenizer does not mark them as special (`<tool_call>`)."""


class Guard:
    """Marks the texts of a tokenizer's control tokens."""

    def __init__(self, control_texts: Iterable[str]) -> None:
        self._mark = f"cut-{secrets.token_hex(8)}"  # random, because content that contains the mark would lose it
        texts = sorted((t for t in control_texts if len(t) > 1), key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(t) for t in texts)) if texts else None

    @classmethod
    def of(cls, tokenizer: Any) -> Guard:
        """Return the guard for a Hugging Face tokenizer."""
        added = tokenizer.added_tokens_decoder.values()
        return cls(t.content for t in added if t.special or _TAG.fullmatch(t.content))

    def text(self, content: str) -> str:
        """Mark the control tokens in a text."""
        if self._pattern is None:
            return content
        return self._pattern.sub(lambda found: found[0][0] + self._mark + found[0][1:], content)

    def value(self, value: Any) -> Any:
        """Mark the control tokens in all strings of a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(inner) for key, inner in value.items()}
        return [self.value(inner) for inner in value] if isinstance(value, list) else value

    def pieces(self, text: str) -> list[str]:
        """Split a rendered text at the marks. The pieces must be encoded separately."""
        return text.split(self._mark)


class GuardedTokenizer:
    """A tokenizer whose `encode` accepts marked text. Everything else is delegated to the inner tokenizer.

    It is not callable, so that the `renderers` library uses only `encode` and skips the attribution of tokens.
    """

    def __init__(self, inner: Any, guard: Guard) -> None:
        self._inner = inner
        self._guard = guard

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def encode(self, text: str, **options: Any) -> list[int]:
        """Encode the pieces between the marks and return all token ids."""
        return [i for piece in self._guard.pieces(text) for i in self._inner.encode(piece, **options)]
