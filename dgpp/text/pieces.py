"""Cutting a run of pieces at a character."""

from __future__ import annotations

from collections.abc import Sequence

from dgpp.text.detokenize import Piece


def split(pieces: Sequence[Piece], head: int) -> tuple[list[Piece], list[Piece]]:
    """`pieces` within and after their first `head` characters; both parts of a cut piece keep its tokens."""
    for at, piece in enumerate(pieces):
        if head < len(piece.text):
            within = list(pieces[:at])
            if head <= 0:
                return within, list(pieces[at:])
            cut = [Piece(piece.text[:head], piece.tokens), Piece(piece.text[head:], piece.tokens)]
            return [*within, cut[0]], [cut[1], *pieces[at + 1 :]]
        head -= len(piece.text)
    return list(pieces), []
