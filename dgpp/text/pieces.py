"""Cutting a run of pieces at a character."""

from __future__ import annotations

from collections.abc import Sequence

from dgpp.text.detokenize import Piece


def split(pieces: Sequence[Piece], head: int) -> tuple[list[Piece], list[Piece]]:
    """`pieces` within and after their first `head` characters; both parts of a cut piece keep its tokens."""
    within: list[Piece] = []
    after: list[Piece] = []
    for piece in pieces:
        cut = min(max(head, 0), len(piece.text))
        if cut:
            within.append(Piece(piece.text[:cut], piece.tokens))
        if cut < len(piece.text):
            after.append(Piece(piece.text[cut:], piece.tokens))
        head -= len(piece.text)
    return within, after
