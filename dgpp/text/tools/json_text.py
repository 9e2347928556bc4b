"""JSON text rewritten in one spacing while it arrives.

The result reads like Python's `json.dumps(..., ensure_ascii=False)`: `", "` and `": "`, characters instead of escapes
where text can hold them. Numbers stay as they were written, so that no digit is lost, and so do doubled keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from dgpp.text.tools.cursor import Cursor, MalformedBlock, Wait

Write = Callable[[str], None]

_PLAIN = re.compile(r'[^"\\]+')
_SCALAR = re.compile(r"[-+.0-9A-Za-z]+")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_DEPTH = 256
BLANKS = " \t\r\n"
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = {"true": "boolean", "false": "boolean", "null": "null"}
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_LOW = re.compile(r"\\u[dD][c-fC-F][0-9A-Fa-f]{2}")
_CLOSING = {"{": "}", "[": "]"}


def escaped(text: str) -> str:
    """`text` as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def json_value(cursor: Cursor, write: Write) -> Wait[str]:
    """Reads one JSON value and writes it in our spacing; returns its type. Line breaks within strings are forgiven.

    A number is complete once the character after it is known. Raises MalformedBlock at the first character that
    cannot stand where it is.
    """
    open: list[str] = []
    kind = ""
    while True:
        yield from cursor.skip(BLANKS)
        first = yield from cursor.peek()
        is_open = False
        if first in ("{", "["):
            write((yield from cursor.literal(first)))
            found = "object" if first == "{" else "array"
            yield from cursor.skip(BLANKS)
            is_open = (yield from cursor.peek()) != _CLOSING[first]
            if is_open:
                if len(open) == _DEPTH:
                    raise MalformedBlock(f"a value is nested more than {_DEPTH} deep")
                open.append(first)
                if first == "{":
                    yield from _key(cursor, write)
            else:
                write((yield from cursor.literal(_CLOSING[first])))
        elif first == '"':
            found = "string"
            yield from json_string(cursor, write)
        else:
            found = yield from _scalar(cursor, write)
        kind = kind or found
        while open and not is_open:
            yield from cursor.skip(BLANKS)
            if (yield from cursor.literal(",", _CLOSING[open[-1]])) == ",":
                write(", ")
                is_open = True
                if open[-1] == "{":
                    yield from cursor.skip(BLANKS)
                    yield from _key(cursor, write)
            else:
                write(_CLOSING[open.pop()])
        if not open:
            return kind


def json_string(cursor: Cursor, write: Write) -> Wait[None]:
    """Reads one JSON string and writes it, quotes and all."""
    write((yield from cursor.literal('"')))
    while True:
        if text := cursor.run(_PLAIN):
            write(escaped(text))
        match (yield from cursor.peek()):
            case '"':
                write((yield from cursor.take(1)))
                return
            case "\\":
                yield from _escape(cursor, write)
            case "":
                yield from cursor.more()


def normalised(text: str) -> tuple[str, str] | None:
    """A JSON text in our spacing and its type, or None where `text` is no JSON value."""
    cursor = Cursor()
    cursor.add(text)
    cursor.end()
    parts: list[str] = []
    reader = _only_value(cursor, parts.append)
    try:
        next(reader)
    except StopIteration as stop:
        return "".join(parts), stop.value
    except MalformedBlock:
        pass
    return None


def _only_value(cursor: Cursor, write: Write) -> Wait[str]:
    kind = yield from json_value(cursor, write)
    yield from cursor.skip(BLANKS)
    if not cursor.ended:
        raise MalformedBlock("text follows the value")
    return kind


def _escape(cursor: Cursor, write: Write) -> Wait[None]:
    letter = (yield from cursor.take(2))[1]
    if letter in _ESCAPES:
        write(escaped(_ESCAPES[letter]))
        return
    digits = (yield from cursor.take(4)) if letter == "u" else ""
    if not _HEX.fullmatch(digits):
        raise MalformedBlock("a string holds an unknown escape")
    code = int(digits, 16)
    if 0xD800 <= code < 0xDC00 and _LOW.fullmatch((yield from cursor.look(6))):
        low = int((yield from cursor.take(6))[2:], 16)
        write(chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)))
    elif 0xD800 <= code < 0xE000:
        write(f"\\u{digits}")  # half a character: only its escape is Unicode text
    else:
        write(escaped(chr(code)))


def _scalar(cursor: Cursor, write: Write) -> Wait[str]:
    parts: list[str] = []
    while _SCALAR.match((yield from cursor.peek())):
        parts.append(cursor.run(_SCALAR))
    word = "".join(parts)
    number = _NUMBER.fullmatch(word)
    kind = _WORDS.get(word) if number is None else "number" if number[2] or number[3] else "integer"
    if kind is None:
        raise MalformedBlock(f"expected a JSON value instead of {word[:20]!r}")
    write(word)
    return kind


def _key(cursor: Cursor, write: Write) -> Wait[None]:
    yield from json_string(cursor, write)
    yield from cursor.skip(BLANKS)
    yield from cursor.literal(":")
    write(": ")
