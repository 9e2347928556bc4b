"""Where a model's thinking begins and ends in the tokens of an answer (spec/api.md §5.4, §7.4).

The markers are single tokens. Whether an answer begins inside the thinking is read off the rendered prompt: a template
that writes the opening marker itself leaves the model only the closing one to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

OPENER, CLOSER = "<think>", "</think>"

Part = Literal["reasoning", "content", "opener", "closer"]


@dataclass(frozen=True)
class Markers:
    """The ids of the tokens that begin and end the thinking."""

    opener: int
    closer: int

    @classmethod
    def of(cls, control_tokens: Mapping[str, int]) -> Markers | None:
        """Those of a tokenizer with these control tokens, if it has both."""
        opener, closer = control_tokens.get(OPENER), control_tokens.get(CLOSER)
        return None if opener is None or closer is None else cls(opener, closer)

    def open_at_end(self, prompt: Sequence[int]) -> bool:
        """Whether `prompt` ends inside the thinking: its last marker is an opening one."""
        for token in reversed(prompt):
            if token in (self.opener, self.closer):
                return token == self.opener
        return False


class Reasoning:
    """The state of one answer, fed with its tokens.

    `inside` says that the answer begins inside the thinking. Otherwise an opening marker begins it while nothing
    visible has been said. Any of `ends`, the tokens that begin a tool call, ends it as the closing marker does.
    """

    def __init__(self, markers: Markers, inside: bool, ends: Iterable[int] = ()) -> None:
        self.inside = inside
        self.tokens = 0  # of thinking, the markers that the model wrote with them
        self._markers = markers
        self._ends = frozenset(ends)
        self._fresh = not inside

    def take(self, token: int) -> Part:
        """To which part of the answer the next token belongs."""
        if self.inside:
            if token in self._ends:
                self.inside = False
                return "content"
            self.tokens += 1
            if token == self._markers.closer:
                self.inside = False
                return "closer"
            return "reasoning"
        if token == self._markers.opener and self._fresh:
            self.inside, self._fresh = True, False
            self.tokens += 1
            return "opener"
        return "content"

    def said(self) -> None:
        """Something visible was said: an opening marker is text from here on."""
        self._fresh = False
