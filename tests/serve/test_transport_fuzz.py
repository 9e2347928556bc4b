"""Bytes that are nearly a request: the parser never fails, and says the same however they are cut."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from waitress.adjustments import Adjustments

from dgpp.serve.transport import Parser

LIMITS = Adjustments(max_request_header_size=500, max_request_body_size=101)
LINES = (b"POST /v1/x HTTP/1.1", b"GET / HTTP/1.1", b"GET / HTTP/1.0", b"get / HTTP/1.1", b"GET //[ HTTP/1.1", b"X")
NAMES = (b"Content-Length", b"content-length ", b"Transfer-Encoding", b"Host", b"Expect", b"Connection", b"", b" x")
VALUES = (b"0", b"5", b"101", b"-1", b"9" * 5000, b"chunked", b"100-continue", b"close", b"\xff", b"a\rb", b"\x00", b"")

headers = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=5)
breaks = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])


@st.composite
def requests(draw: Any) -> bytes:
    """Something like a request."""
    lines = [draw(st.sampled_from(LINES)), *(b": ".join(header) for header in draw(headers))]
    data = b"".join(line + draw(breaks) for line in lines) + draw(breaks)
    return data + draw(st.binary(max_size=20))


def told(pieces: list[bytes]) -> tuple[bool, int | None, bool]:
    """(is it complete, the error's status, does the client wait for a 100) after all pieces."""
    parser = Parser(LIMITS)
    for piece in pieces:
        while piece and not parser.completed:
            taken = parser.received(piece)
            assert 0 <= taken <= len(piece)
            if not taken:
                break
            piece = piece[taken:]
    if parser.error is not None:
        assert parser.completed
        assert not parser.expect_continue
        assert parser.error.code in (400, 411, 413, 431, 501)
    return parser.completed, parser.error and parser.error.code, bool(parser.expect_continue)


@settings(max_examples=300, deadline=None)
@given(st.one_of(requests(), st.binary(max_size=60)), st.integers(0, 200))
def test_api_1_1_bytes_that_are_nearly_a_request(data: bytes, cut: int) -> None:
    assert told([data]) == told([data[:cut], data[cut:]])
