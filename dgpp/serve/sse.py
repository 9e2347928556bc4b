"""Server-sent events: how the objects of a stream become bytes, with keep-alive comments by the wall clock."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

DONE = b"data: [DONE]\n\n"
"""The last event of a completions stream."""
KEEP_ALIVE = b": keep-alive\n\n"

OBFUSCATION_MIN = 16
OBFUSCATION_STEP = 128
_END = b'"}\n\n'
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode_json(value: Any) -> bytes:
    """`value` as compact UTF-8 JSON."""
    return _ENCODER.encode(value).encode("utf-8")


def encode_event(value: Any) -> bytes:
    """One event carrying `value` as JSON."""
    return b"data: " + encode_json(value) + b"\n\n"


def encode_named_event(value: dict[str, Any]) -> bytes:
    """One event carrying `value` as JSON, named by its `type`, for surfaces whose clients go by event names."""
    return b"event: " + str(value["type"]).encode("utf-8") + b"\n" + encode_event(value)


def obfuscated(value: dict[str, Any]) -> bytes:
    """One event carrying `value`, which is not empty, plus random characters that hide the length of its text: at
    least 16 of them, and as many as make the event's bytes a multiple of 128."""
    event = encode_json(value)[:-1] + b',"obfuscation":"'
    size = len(b"data: ") + len(event) + len(_END)
    count = OBFUSCATION_MIN + -(size + OBFUSCATION_MIN) % OBFUSCATION_STEP
    return b"data: " + event + secrets.token_hex((count + 1) // 2)[:count].encode() + _END


def stream(
    chunks: Iterable[dict[str, Any] | None],
    *,
    ping_interval: int,
    encode: Callable[[dict[str, Any]], bytes] = encode_event,
    ping: bytes = KEEP_ALIVE,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[bytes]:
    """The bytes of a stream: an event for each chunk, and `ping` after `ping_interval` seconds without a byte (-1:
    never). A None in `chunks` is the chance to look at the clock, so the ping is late by no more than the time between
    two of them."""
    last_byte = clock()
    for chunk in chunks:
        if chunk is not None:
            yield encode(chunk)
            last_byte = clock()
        elif ping_interval > 0 and clock() - last_byte >= ping_interval:
            yield ping
            last_byte = clock()
