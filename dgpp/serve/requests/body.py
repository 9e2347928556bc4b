"""A request body as a JSON object, with everything refused that later stages could choke on.

Python's decoder accepts NaN, Infinity and unpaired surrogates; a server that lets them through fails later, and
with a 500. Here they are errors that name the place.
"""

from __future__ import annotations

import json
import math
from typing import Any

from dgpp.serve.errors import INVALID, ApiError

MAX_DEPTH = 200
"""Deepest nesting that is taken: far beyond any schema in use, and far from Python's recursion limit."""


class JsonObject(dict[str, Any]):
    """A decoded object; the last of several equal keys wins, and `duplicate` is the first key that came twice."""

    duplicate: str | None = None


def parse_body(raw: bytes) -> JsonObject:
    """The object in `raw`, every string of which encodes to UTF-8 and every number of which is finite.

    Raises ApiError 400 with param `body` when it is not a JSON object in UTF-8, and with the path of the value when
    a string has an unpaired surrogate or a number is not finite.
    """
    try:
        body = json.loads(raw.decode("utf-8"), object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise ApiError(INVALID, "The request body is not UTF-8.", "body") from None
    except RecursionError:
        raise ApiError(INVALID, "The request body is nested too deeply.", "body") from None
    except ValueError as error:
        # A JSONDecodeError, or an integer with more digits than Python converts.
        where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ApiError(INVALID, f"The request body is not valid JSON{where}.", "body") from None
    if not isinstance(body, JsonObject):
        raise ApiError(INVALID, "The request body must be a JSON object.", "body")
    _refuse_unusable(body)
    return body


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    result = JsonObject(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                result.duplicate = key
                break
            seen.add(key)
    return result


def _refuse_unusable(body: JsonObject) -> None:
    """Raises for the first unusable value in document order. Iterative: nesting must not exhaust the stack."""
    stack: list[tuple[str, Any, int]] = [("", body, 1)]
    while stack:
        path, value, depth = stack.pop()
        if isinstance(value, str):
            _refuse_surrogates(path, value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ApiError(INVALID, f"{path} is not a finite number; JSON has no NaN or Infinity.", path)
        elif isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                raise ApiError(INVALID, f"The request body is nested more than {MAX_DEPTH} deep.", "body")
            if isinstance(value, dict):
                for key in value:
                    _refuse_surrogates(path or "body", key)
                inner = [(f"{path}.{key}" if path else key, item, depth + 1) for key, item in value.items()]
            else:
                inner = [(f"{path}[{index}]", item, depth + 1) for index, item in enumerate(value)]
            stack += reversed(inner)


def _refuse_surrogates(path: str, text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ApiError(
            INVALID,
            f"{path} has an unpaired surrogate escape (\\u{ord(text[error.start]):04x}) at character {error.start}; "
            "it stands for no character.",
            path,
        ) from None
