from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgpp.text.detokenize import Detokenizer, Piece

from .splits import few, partitions


def run(parts: list[bytes]) -> list[Piece]:
    detokenizer = Detokenizer()
    pieces = [piece for at, part in enumerate(parts) for piece in detokenizer.feed(at, part)]
    return pieces + detokenizer.finish()


def test_S1_bytes_of_an_emoji_one_by_one() -> None:
    detokenizer = Detokenizer()
    for at, byte in enumerate(b"\xf0\x9f\x98"):
        assert detokenizer.feed(at, bytes([byte])) == []
    assert detokenizer.feed(3, b"\x80") == [Piece("😀", (0, 1, 2, 3))]
    assert detokenizer.finish() == []


def test_S1_a_character_cut_at_the_end_becomes_one_replacement() -> None:
    for size in (1, 2, 3):
        assert run([b"ab", *(bytes([byte]) for byte in "😀".encode()[:size])]) == [
            Piece("ab", (0,)),
            Piece("\N{REPLACEMENT CHARACTER}", tuple(range(1, 1 + size))),
        ]


def test_S1_invalid_bytes_do_not_hold_back_what_follows() -> None:
    detokenizer = Detokenizer()
    assert detokenizer.feed(0, b"a\xff") == [Piece("a", (0,)), Piece("�", (0,))]
    assert detokenizer.feed(1, b"\xf0\x9f") == []
    assert detokenizer.feed(2, b"b") == [Piece("�", (1,)), Piece("b", (2,))]


@few
@given(st.lists(st.sampled_from(["a", "é", "א", "你", "😀", "\u200d"]), max_size=5))
def test_S1_every_split_of_text(characters: list[str]) -> None:
    data = "".join(characters).encode()
    for parts in partitions(data):
        pieces = run(parts)
        assert "".join(piece.text for piece in pieces) == "".join(characters)


@few
@given(st.lists(st.sampled_from([0x41, 0x80, 0xA0, 0xC3, 0xE0, 0xED, 0xF0, 0xF4, 0x9F, 0xFF]), max_size=9).map(bytes))
def test_S1_every_split_of_any_bytes(data: bytes) -> None:
    whole = data.decode("utf-8", "replace")
    for parts in partitions(data):
        assert "".join(piece.text for piece in run(parts)) == whole


@few
@given(st.lists(st.binary(min_size=1, max_size=3), max_size=8))
def test_pieces_name_the_tokens_of_their_bytes(parts: list[bytes]) -> None:
    pieces = run(parts)
    owners = list(itertools.chain.from_iterable([at] * len(part) for at, part in enumerate(parts)))
    data = b"".join(parts)
    at = 0
    for piece in pieces:
        # The piece's bytes: its own text, or as many as one replacement stands for.
        rest = data[at:]
        encoded = piece.text.encode()
        size = len(encoded) if rest.startswith(encoded) else _ill_formed(rest)
        assert piece.tokens == tuple(dict.fromkeys(owners[at : at + size]))
        at += size
    assert at == len(data)


def _ill_formed(data: bytes) -> int:
    """Bytes of the ill-formed part at the start, as the standard decoder measures it."""
    with pytest.raises(UnicodeDecodeError) as error:
        data.decode("utf-8")
    return error.value.end
