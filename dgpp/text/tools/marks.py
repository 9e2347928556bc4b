"""Private characters that stand for the control tokens of a tool-call format while text is parsed.

Generated text holds no unpaired surrogates (`detokenize`), so a control token is never mistaken for its spelling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dgpp.text.detokenize import Piece

_FIRST = 0xD800


class Marks:
    """The marks of those of a format's `texts` that are control tokens; `control` maps the spellings of control tokens
    to their ids. The others are plain text."""

    def __init__(self, texts: Iterable[str], control: Mapping[str, int]) -> None:
        found = [text for text in texts if text in control]
        self.ids: frozenset[int] = frozenset(control[text] for text in found)
        self.spelling: Mapping[int, str] = {_FIRST + at: text for at, text in enumerate(found)}
        """The spellings by the mark's code, for `str.translate`."""
        self._ids = {text: control[text] for text in found}
        self._mark_of = {text: chr(code) for code, text in self.spelling.items()}

    def __call__(self, text: str) -> str:
        """The mark of a control token, or the text itself."""
        return self._mark_of.get(text, text)

    def id(self, text: str) -> int | None:
        """The id of a control token of the format, or None."""
        return self._ids.get(text)

    def marked(self, piece: Piece) -> Piece:
        """The piece of a control token as its mark."""
        return Piece(self(piece.text), piece.tokens)

    def spelled(self, piece: Piece) -> Piece:
        """A piece with its marks spelled out."""
        return Piece(piece.text.translate(self.spelling), piece.tokens)
