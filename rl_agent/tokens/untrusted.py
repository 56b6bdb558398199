"""Keeps text from outside from becoming control tokens: a file that holds `<|im_end|>` must not end a turn.

A mark is put into each control token's text where it occurs in such content. The mark passes the chat template unchanged, and
the tokenizer gets the pieces between the marks one by one, so that no control token can come together again. Text without
control tokens is not touched, and its tokens are not changed.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_TAG: Final = re.compile(r"<[^\s<>]+>|<\|[^<>]*\|>|\[/?[A-Z_]+\]")
"""Added tokens of this form steer a model even where its tokenizer does not call them special (`<tool_call>`)."""


class Guard:
    """Marks the texts of a tokenizer's control tokens."""

    def __init__(self, control_texts: Iterable[str]) -> None:
        self._mark = f"cut-{secrets.token_hex(8)}"  # not to be guessed: content that holds the mark would lose it
        texts = sorted((t for t in control_texts if len(t) > 1), key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(t) for t in texts)) if texts else None

    @classmethod
    def of(cls, tokenizer: Any) -> Guard:
        """The guard of a Hugging Face tokenizer."""
        added = tokenizer.added_tokens_decoder.values()
        return cls(t.content for t in added if t.special or _TAG.fullmatch(t.content))

    def text(self, content: str) -> str:
        """The content, marked."""
        if self._pattern is None:
            return content
        return self._pattern.sub(lambda found: found[0][0] + self._mark + found[0][1:], content)

    def value(self, value: Any) -> Any:
        """A JSON value with all its texts marked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(inner) for key, inner in value.items()}
        return [self.value(inner) for inner in value] if isinstance(value, list) else value

    def pieces(self, text: str) -> list[str]:
        """A rendered text, cut at the marks: to be encoded one by one."""
        return text.split(self._mark)


class GuardedTokenizer:
    """A tokenizer whose `encode` takes marked text; everything else is the inner one's.

    It is not callable: the `renderers` library then encodes by `encode` alone, and does not attribute tokens, which nobody reads.
    """

    def __init__(self, inner: Any, guard: Guard) -> None:
        self._inner = inner
        self._guard = guard

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def encode(self, text: str, **options: Any) -> list[int]:
        """Token ids of the pieces between the marks."""
        return [i for piece in self._guard.pieces(text) for i in self._inner.encode(piece, **options)]
