"""Answers of the Responses API; every streamed one is compared with the whole one by `both_ways`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dgpp.engine.request import FailEvent
from dgpp.serve.errors import ENGINE_FAILURE, ApiError
from dgpp.serve.turn import Failed, Step
from dgpp.text.events import LogprobDelta, LogprobEntry, TextDelta
from tests.serve.responses.support import PATH, asked, assembled, both_ways, read_named, speaking
from tests.serve.support import NAME, Bench, ids
from tests.serve.turns import called, finished, said, steps, thought


def test_responses_whole_object(bench: Callable[..., Bench]) -> None:
    body, _ = both_ways(bench("Hello."), metadata={"k": "v"}, user="me", instructions="Be brief.")
    tag = body["id"].removeprefix("resp_")
    assert len(tag) == 16
    assert body["object"] == "response"
    assert (body["status"], body["error"], body["incomplete_details"]) == ("completed", None, None)
    assert body["output"] == [
        {
            "id": f"msg_{tag}_0",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}],
        }
    ]
    assert body["usage"] == {
        "input_tokens": 40,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 47,
    }
    echoed = ("model", "instructions", "metadata", "user", "temperature", "store", "truncation", "tool_choice", "tools")
    assert [body[key] for key in echoed] == [NAME, "Be brief.", {"k": "v"}, "me", 0, False, "disabled", "auto", []]
    assert body["text"] == {"format": {"type": "text"}}
    assert body["completed_at"] >= body["created_at"]


def test_responses_stream_order(bench: Callable[..., Bench]) -> None:
    _, events = both_ways(speaking(bench, steps(*thought("ab"), *said("cd"), *called(0, "f", "{}"), finished())))
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


MIXED = [
    ("only text", [*said("Hello."), finished()]),
    ("nothing", [finished()]),
    ("white space only", [*said(" \n"), finished()]),
    ("thinking, then text", [*thought("Hm.\n"), *said("\n\nYes."), finished(reasoning=4)]),
    ("thinking only", [*thought("Hm."), finished("length", reasoning=3)]),
    ("empty thinking", [*thought("\n\n"), *said("Yes."), finished()]),
    ("text cut", [*said("Hello"), finished("length")]),
    ("a call", [*called(0, "f", '{"a": "Grüße, 世界 😀\\n\\""}'), finished("tool_calls")]),
    ("text, calls, text", [*said("a\n"), *called(0, "f", "{}"), *called(1, "g", '{"b": 1}'), *said("\nb"), finished()]),
    ("calls apart by white space", [*called(0, "f", "{}"), *said("\n"), *called(1, "g", "{}"), finished("tool_calls")]),
    ("a call without arguments", [*called(0, "f", ""), finished("tool_calls")]),
    ("a cut call", [*called(0, "f", '{"a": "x', closed=False), finished("length")]),
    ("a custom call", [*called(0, "run", "ls -l\n😀", "custom"), finished("tool_calls")]),
    ("both kinds", [*called(0, "run", "x", "custom"), *called(1, "f", "{}"), finished("tool_calls")]),
    ("thinking again", [*thought("a"), *said("b"), *thought("c"), *called(0, "f", "{}"), finished("tool_calls")]),
]


@pytest.mark.parametrize(("events"), [events for _, events in MIXED], ids=[name for name, _ in MIXED])
def test_responses_streamed_equals_whole(bench: Callable[..., Bench], events: list[Any]) -> None:
    body, _ = both_ways(speaking(bench, [*steps(*events[:1]), None, *steps(*events[1:])]))
    cut = events[-1].reason == "length"
    assert body["status"] == ("incomplete" if cut else "completed")
    assert body["incomplete_details"] == ({"reason": "max_output_tokens"} if cut else None)
    assert (body["completed_at"] is None) == cut
    details = body["usage"]["output_tokens_details"]
    assert details == {"reasoning_tokens": events[-1].reasoning_tokens}
    # However the events fall into steps, the answer is the same.
    at_once, _ = both_ways(speaking(bench, [Step(0, tuple(events))]))
    assert [item["type"] for item in at_once["output"]] == [item["type"] for item in body["output"]]
    assert texts(at_once) == texts(body)


def texts(body: dict[str, Any]) -> list[str]:
    """The text, arguments or input of each item."""
    return [
        item["content"][0]["text"] if "content" in item else item.get("arguments", item.get("input"))
        for item in body["output"]
    ]


def output(bench: Callable[..., Bench], *events: Any) -> list[dict[str, Any]]:
    body, _ = both_ways(speaking(bench, steps(*events)))
    items: list[dict[str, Any]] = body["output"]
    return items


def test_responses_items(bench: Callable[..., Bench]) -> None:
    items = output(
        bench,
        *thought("Hm."),
        *said("\n\n"),
        *called(0, "f", '{"a": 1}'),
        *called(1, "r", "x", "custom"),
        finished("tool_calls"),
    )
    assert [item["type"] for item in items] == ["reasoning", "function_call", "custom_tool_call"]
    assert items[0]["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert items[0]["summary"] == []
    assert (items[1]["name"], items[1]["arguments"]) == ("f", '{"a": 1}')
    assert (items[2]["name"], items[2]["input"]) == ("r", "x")
    assert len({item["id"] for item in items}) == 3
    assert len({item["call_id"] for item in items[1:]}) == 2
    assert all(item["status"] == "completed" for item in items)


def test_white_space_before_text_belongs_to_it(bench: Callable[..., Bench]) -> None:
    items = output(bench, *said("\n "), *said("a"), finished())
    assert items[0]["content"][0]["text"] == "\n a"
    items = output(bench, *said(" "), finished())
    assert items[0]["content"][0]["text"] == " "


def test_where_an_answer_is_cut_the_item_says_so(bench: Callable[..., Bench]) -> None:
    assert [item["status"] for item in output(bench, *said("ab"), finished("length"))] == ["incomplete"]
    cut = output(bench, *said("ab"), *called(0, "f", '{"a', closed=False), finished("length"))
    assert [item["status"] for item in cut] == ["completed", "incomplete"]
    assert cut[1]["arguments"] == '{"a'
    whole = output(bench, *called(0, "f", "{}"), finished("length"))
    assert [item["status"] for item in whole] == ["completed"]


def test_responses_logprobs(bench: Callable[..., Bench]) -> None:
    made = bench([*ids("é"), 256, *ids("ab")])
    body, events = both_ways(made, include=["message.output_text.logprobs"], top_logprobs=2)
    entries = body["output"][0]["content"][0]["logprobs"]
    assert [bytes(entry["bytes"]) for entry in entries] == [b"\xc3", b"\xa9", b"a", b"b"]
    assert [bytes(top["bytes"]) for top in entries[2]["top_logprobs"]] == [b"a", b"b"]
    assert body["top_logprobs"] == 2
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [len(event["logprobs"]) for event in deltas] == [2, 1, 1]
    body, _ = both_ways(made)
    assert body["output"][0]["content"][0]["logprobs"] == []
    body, _ = both_ways(made, top_logprobs=1)
    assert len(body["output"][0]["content"][0]["logprobs"]) == 4
    body, _ = both_ways(made, include=["message.output_text.logprobs"])
    assert body["output"][0]["content"][0]["logprobs"][0]["top_logprobs"] == []


def test_logprobs_of_white_space_stay_with_it(bench: Callable[..., Bench]) -> None:
    def entry(text: str) -> LogprobDelta:
        return LogprobDelta((LogprobEntry(1, text, -0.5, text.encode(), (), 0),))

    spoken = [Step(0, (TextDelta(" "), entry(" "))), Step(0, (TextDelta("a"), entry("a"))), *steps(finished())]
    body, _ = both_ways(speaking(bench, spoken), top_logprobs=1)
    assert [found["token"] for found in body["output"][0]["content"][0]["logprobs"]] == [" ", "a"]


def test_responses_cut_by_max_output_tokens(bench: Callable[..., Bench]) -> None:
    body, events = both_ways(bench("Hello."), max_output_tokens=3)
    assert (body["status"], body["max_output_tokens"], body["output"][0]["status"]) == ("incomplete", 3, "incomplete")
    assert events[-1]["type"] == "response.incomplete"


def test_responses_stop(bench: Callable[..., Bench]) -> None:
    body, _ = both_ways(bench("Hello."), stop=["l"])
    assert texts(body) == ["He"]
    assert body["status"] == "completed"


def test_a_turn_that_fails(bench: Callable[..., Bench]) -> None:
    script = [*ids("ab"), FailEvent("engine_failure", "secret detail")]
    made = bench(script)
    whole = made.client.post(PATH, json=asked())
    assert whole.status_code == 503
    assert whole.get_json()["error"]["code"] == "engine_failure"
    streamed = made.client.post(PATH, json=asked(stream=True))
    events = read_named(streamed.data)
    last = assembled(events)
    assert events[-1]["type"] == "response.failed"
    assert last["status"] == "failed"
    assert last["error"] == {
        "code": "server_error",
        "message": "The engine stopped after an error; the server's log says why.",
    }
    assert [item["status"] for item in last["output"]] == ["in_progress"]
    assert b"secret" not in whole.data + streamed.data


def test_a_turn_that_fails_before_it_says_anything(bench: Callable[..., Bench]) -> None:
    made = speaking(bench, steps(Failed(ApiError(ENGINE_FAILURE, "It stopped."))))
    events = read_named(made.client.post(PATH, json=asked(stream=True)).data)
    assert [event["type"] for event in events[2:]] == ["response.failed"]


def test_an_unforeseen_error_is_an_error_event(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = speaking(bench, steps(*said("ab"), finished()))
    monkeypatch.setattr("dgpp.serve.responses.objects.Item.part", lambda self: 1 / 0)
    events = read_named(made.client.post(PATH, json=asked(stream=True)).data)
    assert events[-1]["type"] == "error"
    assert events[-1]["sequence_number"] == len(events) - 1
    assert "division" not in str(events)
    assert "ZeroDivisionError" in caplog.text


def test_obfuscation_pads_deltas(bench: Callable[..., Bench]) -> None:
    data = bench("Hey").client.post(PATH, json=asked(stream=True)).data
    for event in read_named(data):
        assert ("obfuscation" in event) == event["type"].endswith(".delta")
    assert b"[DONE]" not in data
    blocks = [block.partition(b"\n")[2] + b"\n\n" for block in data.split(b"\n\n") if b".delta" in block]
    assert all(len(block) % 128 == 0 for block in blocks)


def test_keep_alive_while_nothing_happens(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr("dgpp.serve.sse.stream.__kwdefaults__", {"clock": lambda: next(now)}, raising=False)
    made = speaking(bench, [None, None, *steps(*said("a"), finished())])
    data = made.client.post(PATH, json=asked(stream=True, sse_ping_interval=5)).data
    assert data.count(b": keep-alive\n\n") == 2
    assembled(read_named(data))
