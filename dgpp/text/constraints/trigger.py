"""How the beginning of a tool call is noticed in running text (case L8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dgpp.text.constraints.matcher import Walk
from dgpp.text.constraints.vocabulary import TokenVocabulary


@dataclass(frozen=True)
class Trigger:
    """What opens a tool call: a control token behind the text `before`, or (without an `id`) the text alone."""

    before: bytes
    id: int | None = None

    @staticmethod
    def of(opener: str, controls: Mapping[str, int]) -> Trigger:
        """The trigger of an opener's text: as far as its first control token, where it has one."""
        found = [(opener.index(text), -len(text), id) for text, id in controls.items() if text and text in opener]
        if not found:
            return Trigger(opener.encode())
        at, _, id = min(found)
        return Trigger(opener[:at].encode(), id)

    def feed(self, walk: Walk, rest: bytes = b"") -> bool:
        """Takes a tool grammar past what was noticed, and `rest` after it; False where it does not begin so."""
        if self.id is None:
            return walk.say(self.before + rest)
        if self.before and not walk.say(self.before):
            return False
        if not walk.takes(self.id):
            return False
        walk.accept(self.id)
        return True


class Tail:
    """The end of the text since the last control token: as much of it as may become part of an opener."""

    def __init__(self, trigger: Trigger, data: bytes = b"") -> None:
        self._trigger = trigger
        self._data = data

    def copy(self) -> Tail:
        """Another of the same state."""
        return Tail(self._trigger, self._data)

    @property
    def said(self) -> int:
        """How many bytes of an opener's text have just been said."""
        text = self._trigger.before
        return next((k for k in range(min(len(self._data), len(text) - 1), 0, -1) if self._data.endswith(text[:k])), 0)

    def add(self, token: int, vocabulary: TokenVocabulary) -> bytes | None:
        """Goes on past `token`. The text that follows the opener within it, where it completes one; else None."""
        text = self._trigger.before
        if token in vocabulary.controls:
            hit = token == self._trigger.id and self._data.endswith(text)
            self._data = b""
            return b"" if hit else None
        data = self._data + vocabulary.token_bytes(token)
        keep = len(text) - (self._trigger.id is None)
        self._data = data[-keep:] if keep else b""
        if self._trigger.id is None and text in data:
            self._data = b""
            return data[data.index(text) + len(text) :]
        return None
