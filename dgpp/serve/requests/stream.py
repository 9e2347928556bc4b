"""How a streamed answer is sent: `stream`, `stream_options` and `sse_ping_interval` (spec/api.md §3, §6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dgpp.serve.errors import INVALID, UNSUPPORTED_PARAMETER, ApiError
from dgpp.serve.requests.fields import INT32_MAX, Field, Flag, Shaped, nullable

INCLUDE_USAGE = Flag("include_usage", "A last chunk with the usage.", null=False, prefix="stream_options.")
INCLUDE_OBFUSCATION = Flag(
    "include_obfuscation", "Random padding that hides the length of tokens.", True, null=False, prefix="stream_options."
)
_OPTIONS = (INCLUDE_USAGE, INCLUDE_OBFUSCATION)


def _options(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ApiError(INVALID, "stream_options must be an object.", "stream_options")
    for key in value:
        if key not in {option.name for option in _OPTIONS}:
            raise ApiError(UNSUPPORTED_PARAMETER, f"stream_options.{key} is not supported.", f"stream_options.{key}")
    return value


def _interval(value: Any) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not (value == -1 or 1 <= value <= INT32_MAX):
        raise ApiError(INVALID, f"sse_ping_interval must be -1 or between 1 and {INT32_MAX}.", "sse_ping_interval")
    return int(value)


STREAM = Flag("stream", "Server-sent events instead of one object.")
STREAM_OPTIONS = Shaped[dict[str, Any] | None](
    "stream_options",
    "How a stream is sent; needs stream: true.",
    nullable(
        {
            "type": "object",
            "properties": {option.name: option.schema for option in _OPTIONS},
            "additionalProperties": False,
        }
    ),
    _options,
    None,
)
SSE_PING_INTERVAL = Shaped[int | None](
    "sse_ping_interval",
    "Extension: seconds of silence before a keep-alive comment, -1 for none; needs stream: true.",
    {"anyOf": [{"const": -1}, {"type": "integer", "minimum": 1, "maximum": INT32_MAX}]},
    _interval,
    None,
)
STREAM_FIELDS: tuple[Field, ...] = (STREAM, STREAM_OPTIONS, SSE_PING_INTERVAL)


@dataclass(frozen=True)
class StreamOptions:
    """How a streamed answer is sent. `ping_interval` is in seconds, -1 for no comments, None as the server does."""

    include_usage: bool = False
    include_obfuscation: bool = True
    ping_interval: int | None = None


def read_stream(body: Mapping[str, Any]) -> StreamOptions | None:
    """The options of a stream, or None for an answer in one piece; raises ApiError for options without a stream."""
    stream = STREAM.read(body)
    options = STREAM_OPTIONS.read(body)
    if options is not None and not stream:
        raise ApiError(INVALID, "stream_options needs stream: true.", "stream_options")
    usage, obfuscation = (option.read(options or {}) for option in _OPTIONS)
    name = SSE_PING_INTERVAL.name
    if name in body:
        _interval(body[name])  # null is no number of seconds
        if not stream:
            raise ApiError(INVALID, f"{name} needs stream: true.", name)
    return StreamOptions(usage, obfuscation, SSE_PING_INTERVAL.read(body)) if stream else None
