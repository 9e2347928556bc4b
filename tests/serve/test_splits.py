"""Answers of the Responses and Messages APIs do not depend on how their events are cut and joined."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.engine.request import Sampling
from dgpp.serve.anthropic.events import MessageEvents
from dgpp.serve.requests.body import JsonObject
from dgpp.serve.requests.chat import ChatRequest
from dgpp.serve.requests.decoding import Decoding
from dgpp.serve.responses.events import ResponseEvents
from dgpp.serve.responses.objects import Frame
from dgpp.serve.turn import Step
from dgpp.text.events import CallArguments, CallClosed, CallOpened, Event, TextDelta
from tests.serve.anthropic import support as messages
from tests.serve.responses import support as responses
from tests.serve.turns import SpokenTurn, finished

WORDS = st.text('ab \n😀"{', max_size=8)


@st.composite
def spoken(draw: st.DrawFn) -> list[Event]:
    """An answer of thinking, text and calls, each text in one piece."""
    events: list[Event] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from(("reasoning", "content", "function", "custom")), max_size=6)):
        text = draw(WORDS)
        if kind in ("function", "custom"):
            events += [CallOpened(calls, f"tool{calls}", kind), CallArguments(calls, text or "{}"), CallClosed(calls)]
            calls += 1
        elif text:
            events.append(TextDelta(text, kind))
    cut = draw(st.booleans())
    if cut and events and isinstance(events[-1], CallClosed):
        events.pop()
    return [*events, finished("length" if cut else "tool_calls" if calls else "stop")]


def recut(chance: random.Random, events: Iterable[Event]) -> list[Step | None]:
    """Steps with the same events, their texts cut at drawn places."""
    pieces: list[Event] = []
    for event in events:
        if not isinstance(event, TextDelta | CallArguments):
            pieces.append(event)
            continue
        text = event.text
        places = sorted(at for at in range(1, len(text)) if chance.random() < 0.5)
        for begin, end in zip([0, *places], [*places, len(text)], strict=True):
            if part := text[begin:end]:
                same = (
                    TextDelta(part, event.field) if isinstance(event, TextDelta) else CallArguments(event.index, part)
                )
                pieces.append(same)
    steps: list[Step | None] = []
    while pieces:
        count = chance.randrange(4)
        steps.append(Step(0, tuple(pieces[:count])) if count else None)
        pieces = pieces[count:]
    return steps


def response(steps: list[Step | None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(from the deltas, from the last event)."""
    turn: Any = SpokenTurn(steps, "m")
    frame = Frame(turn, ChatRequest("m", [], Decoding()), JsonObject(), Sampling())
    events = [event for event in ResponseEvents(turn, frame).events() if event is not None]
    return responses.same(responses.assembled(events)), responses.same(events[-1]["response"])


def message(steps: list[Step | None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(from the deltas, whole)."""
    turn: Any = SpokenTurn(steps, "m")
    made = MessageEvents(turn)
    events = [event for event in made.events() if event is not None]
    return messages.same(assembled_arguments(events)), messages.same(MessageEvents(turn).whole())


def assembled_arguments(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message, its arguments as text."""
    arguments: dict[int, str] = {}
    kept = []
    for event in events:
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            arguments[event["index"]] = arguments.get(event["index"], "") + event["delta"]["partial_json"]
        else:
            kept.append(event)
    found = messages.assembled(kept)
    for index, text in arguments.items():
        found["content"][index]["arguments"] = text
    return found


@pytest.mark.parametrize("read", [response, message])
@settings(deadline=None, max_examples=80)
@given(events=spoken(), seed=st.integers(0, 2**32))
def test_any_cut_says_the_same(read: Any, events: list[Event], seed: int) -> None:
    deltas, whole = read([Step(0, tuple(events))])
    recut_deltas, recut_whole = read(recut(random.Random(seed), events))
    assert recut_deltas == deltas
    assert recut_whole == whole
