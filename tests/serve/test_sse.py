"""Bytes of streams: events, padding, keep-alive comments by a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dgpp.serve.sse import KEEP_ALIVE, encode_event, encode_named_event, obfuscated, stream


def test_event_is_compact_utf8_json() -> None:
    assert encode_event({"a": "é\n", "b": [1, None]}) == 'data: {"a":"é\\n","b":[1,null]}\n\n'.encode()


@pytest.mark.parametrize("length", range(300))
def test_api_6_4_obfuscation_pads_to_128(length: int) -> None:
    value = {"id": "x", "text": "é" * (length // 2) + "a" * (length % 2)}
    event = obfuscated(value)
    padding = json.loads(event.removeprefix(b"data: "))["obfuscation"]
    assert len(event) % 128 == 0
    assert 16 <= len(padding) < 16 + 128
    assert padding.isalnum()
    assert json.loads(event.removeprefix(b"data: ")) == {**value, "obfuscation": padding}


def test_obfuscation_differs_each_time() -> None:
    assert obfuscated({"a": 1}) != obfuscated({"a": 1})


class Clock:
    """Seconds that pass only when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def run(script: list[float | dict[str, Any]], interval: int) -> list[bytes]:
    """The bytes of a stream whose source waits (a float, in seconds) or says something."""
    clock = Clock()

    def source() -> Iterator[dict[str, Any] | None]:
        for item in script:
            if isinstance(item, dict):
                yield item
            else:
                clock.now += item
                yield None

    return list(stream(source(), ping_interval=interval, clock=clock))


def test_A9_silence_is_measured_from_the_last_byte() -> None:
    event = {"a": 1}
    sent = encode_event(event)
    assert run([0.5, 0.4, event, 0.9, 0.2, 0.9, 0.2, event], 1) == [sent, KEEP_ALIVE, KEEP_ALIVE, sent]
    assert run([1.0], 1) == [KEEP_ALIVE]
    assert run([0.25] * 16, 2) == [KEEP_ALIVE, KEEP_ALIVE]
    assert run([100.0], -1) == []


def test_other_surfaces_name_their_events_and_pings() -> None:
    assert encode_named_event({"type": "ping"}) == b'event: ping\ndata: {"type":"ping"}\n\n'
    clock = iter((0.0, 1.0, 1.0))
    ping = encode_named_event({"type": "ping"})
    assert list(stream([None], ping_interval=1, ping=ping, clock=lambda: next(clock))) == [ping]
