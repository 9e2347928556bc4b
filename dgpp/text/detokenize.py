"""Token bytes to text, without ever cutting a character.

Bytes that may still begin a character are held. Bytes that cannot be UTF-8 become one U+FFFD per maximal ill-formed
part (Unicode 15, §3.9; the same text as `bytes.decode("utf-8", "replace")`), and so does a tail that is still
incomplete at the end. The text therefore does not depend on how the bytes were divided into tokens.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Piece:
    """Whole characters, and the tokens (in order) of whose bytes they are made."""

    text: str
    tokens: tuple[int, ...]


class Detokenizer:
    """Incremental UTF-8 decoder of one field's bytes that knows which tokens each piece of text came from."""

    def __init__(self) -> None:
        self._held = b""
        self._owners: list[tuple[int, int]] = []  # (token, its bytes among the held ones)

    def feed(self, token: int, data: bytes) -> list[Piece]:
        """The text that `data`, the bytes of `token`, completes."""
        if not data:
            return []
        self._held += data
        self._owners.append((token, len(data)))
        return self._decode(final=False)

    def finish(self) -> list[Piece]:
        """The incomplete tail as one U+FFFD; nothing when there is none."""
        return self._decode(final=True)

    def _decode(self, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        while self._held:
            try:
                text, used = codecs.utf_8_decode(self._held, "strict", final)
            except UnicodeDecodeError as error:
                if error.start:
                    pieces.append(self._take(self._held[: error.start].decode("utf-8"), error.start))
                pieces.append(self._take(REPLACEMENT, error.end - error.start))
                continue
            if used:
                pieces.append(self._take(text, used))
            break
        return pieces

    def _take(self, text: str, used: int) -> Piece:
        """A piece made of the first `used` held bytes."""
        self._held = self._held[used:]
        tokens: list[int] = []
        while used:
            token, size = self._owners[0]
            tokens.append(token)
            if size <= used:
                del self._owners[0]
            else:
                self._owners[0] = (token, size - used)
            used -= min(size, used)
        return Piece(text, tuple(tokens))
