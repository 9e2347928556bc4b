"""Answers of the Messages API; every streamed one is compared with the whole one by `both_ways`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dgpp.engine.request import FailEvent
from dgpp.serve.turn import Step
from dgpp.text.events import StopHit
from tests.serve.anthropic.support import PATH, asked, both_ways
from tests.serve.responses.support import read_named, speaking
from tests.serve.responses.test_answers import MIXED
from tests.serve.support import NAME, Bench, ids
from tests.serve.turns import PROMPT_TOKENS, called, finished, said, steps, thought


def test_messages_whole_object(bench: Callable[..., Bench]) -> None:
    body, events = both_ways(bench("Hello."), metadata={"user_id": "me"})
    assert len(body.pop("id").removeprefix("msg_")) == 16
    usage = {
        "input_tokens": 21,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 0},
    }
    assert body == {
        "type": "message",
        "role": "assistant",
        "model": NAME,
        "content": [{"type": "text", "text": "Hello."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    assert events[0]["message"]["usage"] == {**usage, "output_tokens": 0}


def test_messages_stream_order(bench: Callable[..., Bench]) -> None:
    _, events = both_ways(speaking(bench, steps(*thought("ab"), *said("cd"), *called(0, "f", "{}"), finished())))
    kinds = [event["delta"]["type"] if event["type"] == "content_block_delta" else event["type"] for event in events]
    assert kinds == [
        "message_start",
        "content_block_start",
        "thinking_delta",
        "thinking_delta",
        "signature_delta",
        "content_block_stop",
        "content_block_start",
        "text_delta",
        "text_delta",
        "content_block_stop",
        "content_block_start",
        "input_json_delta",
        "input_json_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
FUNCTIONS = [(name, events) for name, events in MIXED if name not in ("a custom call", "both kinds")]


@pytest.mark.parametrize("events", [events for _, events in FUNCTIONS], ids=[name for name, _ in FUNCTIONS])
def test_messages_streamed_equals_whole(bench: Callable[..., Bench], events: list[Any]) -> None:
    body, _ = both_ways(speaking(bench, [*steps(*events[:1]), None, *steps(*events[1:])]))
    assert body["stop_reason"] == REASONS[events[-1].reason]
    assert body["usage"]["output_tokens_details"] == {"thinking_tokens": events[-1].reasoning_tokens}
    at_once, _ = both_ways(speaking(bench, [Step(0, tuple(events))]))
    kinds = [[(block["type"], block.get("text")) for block in found["content"]] for found in (at_once, body)]
    assert kinds[0] == kinds[1]


def content(bench: Callable[..., Bench], *events: Any) -> list[dict[str, Any]]:
    body, _ = both_ways(speaking(bench, steps(*events)))
    blocks: list[dict[str, Any]] = body["content"]
    return blocks


def test_messages_blocks(bench: Callable[..., Bench]) -> None:
    blocks = content(
        bench,
        *thought("Hm."),
        *said("\n\nLook:"),
        *called(0, "f", '{"a": [1, {"b": "ü\\n"}]}'),
        *called(1, "g", ""),
        finished("tool_calls"),
    )
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    assert blocks[0]["thinking"] == "Hm."
    assert blocks[1]["text"] == "\n\nLook:"
    assert (blocks[2]["name"], blocks[2]["input"]) == ("f", {"a": [1, {"b": "ü\n"}]})
    assert (blocks[3]["name"], blocks[3]["input"]) == ("g", {})
    assert blocks[2]["id"] != blocks[3]["id"]


def test_the_signature_belongs_to_the_thought(bench: Callable[..., Bench]) -> None:
    one, two, other = (content(bench, *thought(text), finished())[0]["signature"] for text in ("ab", "ab", "ac"))
    assert one == two != other
    assert len(one) == 32


def test_thoughts_are_left_out_on_request(bench: Callable[..., Bench]) -> None:
    made = speaking(bench, steps(*thought("Hm."), *said("a"), finished()))
    body, _ = both_ways(made, thinking={"type": "adaptive", "display": "omitted"})
    assert [block["type"] for block in body["content"]] == ["thinking", "text"]
    assert body["content"][0]["thinking"] == ""
    assert body["content"][0]["signature"] != ""
    body, _ = both_ways(made, thinking={"type": "adaptive", "display": "summarized"})
    assert body["content"][0]["thinking"] == "Hm."


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ('{"a": 1, "b": "cut', {"a": 1}),
        ('{"a": "x", "b"', {"a": "x"}),
        ('{"a": {"b": [1, "x", "cu', {"a": {"b": [1, "x"]}}),
        ('{"a": {"b": "c,}\\"]"}, "d": {', {"a": {"b": 'c,}"]'}, "d": {}}),
        ('{"a": tr', {}),
        ("{", {}),
    ],
)
def test_a_cut_call_keeps_what_is_certain(bench: Callable[..., Bench], text: str, certain: dict[str, Any]) -> None:
    body, _ = both_ways(speaking(bench, steps(*called(0, "f", text, closed=False), finished("length"))))
    assert body["content"][0]["input"] == certain
    assert body["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("text", ['{"a": 1e999}', '{"a": NaN}', '{"a": "\\ud800"}', "[1]", '{"a": ' + "[" * 5000])
def test_arguments_that_cannot_be_sent_again(bench: Callable[..., Bench], text: str) -> None:
    made = speaking(bench, steps(*called(0, "f", text), finished("tool_calls")))
    reply = made.client.post(PATH, json=asked())
    assert reply.status_code == 200
    assert reply.get_json()["content"][0]["input"] in ({}, {"a": "?"})


def test_messages_stop_reasons(bench: Callable[..., Bench]) -> None:
    made = bench("Hello.")
    body, _ = both_ways(made, stop_sequences=["zz", "l"])
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", "l")
    assert body["content"][0]["text"] == "He"
    body, _ = both_ways(made, max_tokens=2)
    assert (body["stop_reason"], body["stop_sequence"]) == ("max_tokens", None)
    body, _ = both_ways(made, stop_sequences=[])
    assert body["stop_reason"] == "end_turn"
    spoken = steps(*called(0, "f", "{}"), StopHit("x"), finished("stop"))
    body, _ = both_ways(speaking(bench, spoken))
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", "x")


def test_input_tokens_from_the_cache_are_counted_apart(bench: Callable[..., Bench]) -> None:
    made = speaking(bench, steps(*said("a"), finished(tokens=3)))
    begin = made.service.chat

    def chat(request: Any) -> Any:
        turn = begin(request)
        turn.cached_tokens = 8
        return turn

    made.service.chat = chat  # type: ignore[method-assign]
    usage = both_ways(made)[0]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (PROMPT_TOKENS - 8, 8)
    assert usage["output_tokens"] == 3


def test_a_turn_that_fails(bench: Callable[..., Bench]) -> None:
    made = bench([*ids("ab"), FailEvent("engine_failure", "secret detail")])
    message = "The engine stopped after an error; the server's log says why."
    error = {"type": "error", "error": {"type": "api_error", "message": message}}
    whole = made.client.post(PATH, json=asked())
    assert (whole.status_code, whole.get_json()) == (503, error)
    events = read_named(made.client.post(PATH, json=asked(stream=True)).data)
    assert events[-1] == error
    assert not any(event["type"].startswith("message_") for event in events[1:])


def test_an_unforeseen_error_is_an_error_event(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = speaking(bench, steps(*said("ab"), finished()))
    monkeypatch.setattr("dgpp.serve.anthropic.events._Block.delta", lambda self, text: 1 / 0)
    events = read_named(made.client.post(PATH, json=asked(stream=True)).data)
    assert events[-1] == {
        "type": "error",
        "error": {"type": "api_error", "message": "The server failed; its log says why."},
    }
    assert "ZeroDivisionError" in caplog.text


def test_pings_while_nothing_happens(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr("dgpp.serve.sse.stream.__kwdefaults__", {"clock": lambda: next(now)}, raising=False)
    made = speaking(bench, [None, None, *steps(*said("a"), finished())])
    events = read_named(made.client.post(PATH, json=asked(stream=True, sse_ping_interval=5)).data)
    assert [event["type"] for event in events].count("ping") == 2
    assert b"[DONE]" not in made.client.post(PATH, json=asked(stream=True)).data
