from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgpp.text.detokenize import Piece
from dgpp.text.stops import StopMatcher

from .splits import few, partitions

texts = st.text("ab<", max_size=9)
stops = st.lists(st.text("ab<", min_size=1, max_size=4), max_size=4)


def cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """What is visible, and the stop string that ended it, looked for one character at a time."""
    for end in range(len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            longest = max(ended, key=len)
            return text[: end - len(longest)], longest
    return text, None


def held(text: str, stops: list[str]) -> int:
    """Length of the longest suffix that is a proper prefix of a stop string."""
    return max((k for stop in stops for k in range(len(stop)) if text.endswith(stop[:k])), default=0)


def shown(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def test_S2_a_stop_string_over_four_tokens_shows_nothing() -> None:
    matcher = StopMatcher(["DEFGHIJ"])
    for at, text in enumerate(["DEF", "G", "HI"]):
        assert matcher.feed([Piece(text, (at,))]) == []
    assert matcher.feed([Piece("J", (3,))]) == []
    assert matcher.hit == "DEFGHIJ"
    assert matcher.feed([Piece("K", (4,))]) == []
    assert matcher.finish() == []


def test_S2_text_before_and_after_within_one_token() -> None:
    matcher = StopMatcher(["own fox"])
    assert shown(matcher.feed([Piece("The quick br", (0,))])) == "The quick br"
    assert matcher.feed([Piece("own", (1,))]) == []
    assert matcher.feed([Piece(" fox jumps", (2,))]) == []
    assert matcher.hit == "own fox"


def test_S2_what_was_held_is_released_at_the_end() -> None:
    matcher = StopMatcher(["</s>"])
    assert matcher.feed([Piece("a</", (0,))]) == [Piece("a", (0,))]
    assert matcher.finish() == [Piece("</", (0,))]
    assert matcher.hit is None


def test_the_first_to_be_complete_wins_and_of_these_the_longest() -> None:
    for stops, text, expected in (
        (["abcdef", "cd"], "abcdef", ("ab", "cd")),
        (["d", "cd", "bcd"], "abcdef", ("a", "bcd")),
        (["aab"], "aaab", ("a", "aab")),
    ):
        matcher = StopMatcher(stops)
        assert (shown(matcher.feed([Piece(text, (0,))])), matcher.hit) == expected


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])


@few
@given(texts, stops)
def test_S2_every_split(text: str, stops: list[str]) -> None:
    expected = cut(text, stops)
    for parts in partitions(text.encode()):
        matcher = StopMatcher(stops)
        visible = ""
        fed = ""
        for at, part in enumerate(parts):
            visible += shown(matcher.feed([Piece(part.decode(), (at,))]))
            fed += part.decode()
            if matcher.hit is None:  # exactly what cannot begin a match any more has been shown
                assert visible == fed[: len(fed) - held(fed, stops)]
        visible += shown(matcher.finish())
        assert (visible, matcher.hit) == expected


@few
@given(texts, stops)
def test_pieces_keep_their_tokens(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    pieces = [piece for at, one in enumerate(text) for piece in matcher.feed([Piece(one, (at,))])] + matcher.finish()
    assert [piece.tokens for piece in pieces] == [(at,) for at in range(len(cut(text, stops)[0]))]
