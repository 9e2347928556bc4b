"""The arguments of a call as an object, which this API has in whole messages; the stream has their text."""

from __future__ import annotations

import json
import math
from typing import Any

from dgpp.serve.requests.body import MAX_DEPTH

TRIES = 16
"""Places that are tried: a cut needs one or two; text that is wrong further back is not worth more."""

_CLOSERS = {"{": "}", "[": "]"}


def argument_object(text: str) -> dict[str, Any]:
    """The object in `text`. Where the text was cut off, the members that are certain: a string that is not closed is
    left out with what it names, as the API's own client reads such a stream. Empty when nothing is certain."""
    for end, closers in _candidates(text):
        try:
            value = json.loads(text[:end] + closers, parse_constant=_refuse, parse_float=_finite)
        except ValueError:
            continue
        return _encodable(value) if isinstance(value, dict) else {}
    return {}


def _candidates(text: str) -> list[tuple[int, str]]:
    """(where to cut, what closes the text there) for the last places at which a value may have ended, from the end;
    none for a text that is nested deeper than this server sends or takes."""
    found: list[tuple[int, str]] = []
    stack: list[str] = []
    quoted = escaped = False
    for at, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character == '"':
            quoted = True
        elif character in "{[":
            stack.append(_CLOSERS[character])
            if len(stack) > MAX_DEPTH:
                return []
            found.append((at + 1, "".join(reversed(stack))))
        elif character in "}]" and stack:
            stack.pop()
        elif character == ",":
            found.append((at, "".join(reversed(stack))))
    if not quoted:
        found.append((len(text), "".join(reversed(stack))))
    return found[: -TRIES - 1 : -1]


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is beyond what JSON can carry again")
    return value


def _encodable(value: dict[str, Any]) -> dict[str, Any]:
    """`value`, with question marks for surrogates that stand for no character."""
    written = json.dumps(value, ensure_ascii=False)
    try:
        written.encode()
    except UnicodeEncodeError:
        replaced: dict[str, Any] = json.loads(written.encode("utf-8", "replace"))
        return replaced
    return value
