"""The bytes that a vocabulary entry stands for, by the decoder that `tokenizer.json` names.

Byte-level BPE writes each byte as one printable character (GPT-2's table). SentencePiece-like vocabularies write a
space as U+2581 and a byte as `<0xNN>`, and drop the space that their encoder put before a text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's characters of the 256 bytes: printable Latin-1 stands for itself, the rest follows from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


@dataclass(frozen=True)
class TokenDecoder:
    """How the text of a token becomes bytes, each token by itself."""

    byte_level: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    drops_leading_space: bool = False  # the first token of a text loses one leading space

    def bytes_of(self, token: str) -> bytes:
        """The bytes of a vocabulary entry in the middle of a text."""
        if self.byte_level:
            if all(character in _BYTE_OF for character in token):
                return bytes(_BYTE_OF[character] for character in token)
            return token.encode("utf-8")
        for old, new in self.replacements:
            token = token.replace(old, new)
        if self.byte_fallback and (piece := _BYTE_PIECE.fullmatch(token)):
            return bytes([int(piece[1], 16)])
        return token.encode("utf-8")


def read_decoder(spec: dict[str, Any] | None) -> TokenDecoder:
    """The decoder that `tokenizer.json` describes.

    Raises ValueError naming a decoder whose tokens have no bytes of their own.
    """
    byte_level = byte_fallback = drops = False
    replacements: list[tuple[str, str]] = []
    for step in _steps(spec):
        match step:
            case {"type": "ByteLevel"}:
                byte_level = True
            case {"type": "ByteFallback"}:
                byte_fallback = True
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
                replacements.append((old, new))
            case {"type": "Metaspace", "replacement": str(old)}:
                replacements.append((old, " "))
                scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")
                drops = scheme != "never"
            case {"type": "Strip", "content": " ", "start": 1, "stop": 0}:
                drops = True
            case {"type": "Fuse"}:
                pass
            case _:
                raise ValueError(f"the decoder {step!r} is not supported")
    if not byte_level and not replacements:
        raise ValueError(f"the decoder {spec!r} is not supported: it is neither byte-level nor SentencePiece-like")
    return TokenDecoder(byte_level, tuple(replacements), byte_fallback, drops)


def _steps(spec: dict[str, Any] | None) -> list[dict[str, Any]]:
    match spec:
        case None:
            return []
        case {"type": "Sequence", "decoders": list(steps)}:
            return [inner for step in steps for inner in _steps(step)]
        case _:
            return [spec]
