"""Stop strings over text that arrives in pieces.

The match that is completed first wins; of several completed by the same character, the longest. This rule looks only
backwards, so it gives the same cut however the text was divided. What might still begin a match is held back: the
longest suffix of the text that is a proper prefix of a stop string, and no more.
"""

from __future__ import annotations

from collections.abc import Sequence

from dgpp.text.detokenize import Piece
from dgpp.text.pieces import split


class StopMatcher:
    """Passes pieces through up to the first stop string. `hit` is that string once it was found."""

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise ValueError("a stop string may not be empty")
        self.hit: str | None = None
        # Longest first, so that the first match at a character is the longest one.
        self._stops = [_Automaton(stop) for stop in sorted(set(stops), key=len, reverse=True)]
        self._held: list[Piece] = []

    def feed(self, pieces: Sequence[Piece]) -> list[Piece]:
        """The text that is now known to be visible; after a hit nothing is."""
        if self.hit is not None:
            return []
        if not self._held and not any(stop.text[0] in piece.text for piece in pieces for stop in self._stops):
            return list(pieces)  # no match can begin here: the usual case
        for at, piece in enumerate(pieces):
            for index, character in enumerate(piece.text):
                matched = [stop for stop in self._stops if stop.step(character)]
                if matched:
                    self.hit = matched[0].text
                    seen = [*self._held, *pieces[:at], Piece(piece.text[: index + 1], piece.tokens)]
                    self._held = []
                    return _but_last(seen, len(self.hit))[0]
        visible, self._held = _but_last([*self._held, *pieces], max(stop.matched for stop in self._stops))
        return visible

    def finish(self) -> list[Piece]:
        """The text held back, now that no match can follow."""
        held, self._held = self._held, []
        return held


class _Automaton:
    """Knuth-Morris-Pratt: `matched` is the length of the longest suffix read so far that is a prefix of `text`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        self._fallback = [0] * len(text)
        length = 0
        for i in range(1, len(text)):
            while length and text[i] != text[length]:
                length = self._fallback[length - 1]
            length += text[i] == text[length]
            self._fallback[i] = length

    def step(self, character: str) -> bool:
        """Reads one character; whether it completes the text. Not to be called again after it did."""
        while self.matched and self.text[self.matched] != character:
            self.matched = self._fallback[self.matched - 1]
        self.matched += self.text[self.matched] == character
        return self.matched == len(self.text)


def _but_last(pieces: Sequence[Piece], tail: int) -> tuple[list[Piece], list[Piece]]:
    """`pieces` before and within the last `tail` characters."""
    return split(pieces, sum(len(piece.text) for piece in pieces) - tail)
