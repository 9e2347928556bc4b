"""Requests to /v1/responses, and responses put together from the deltas of a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from dgpp.serve.turn import Failed, Step
from tests.serve.support import NAME, Bench
from tests.serve.turns import SpokenTurn

PATH = "/v1/responses"
TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def asked(**fields: Any) -> dict[str, Any]:
    """A request body."""
    return {"model": NAME, "input": "hi", "temperature": 0, **fields}


def speaking(bench: Callable[..., Bench], steps: Sequence[Step | Failed | None]) -> Bench:
    """A bench whose turns say `steps`; requests are parsed as always."""
    made = bench()
    made.service.chat = lambda chat: SpokenTurn(steps, chat.model)  # type: ignore[assignment,method-assign]
    return made


def read_named(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each under its own type; comments are skipped."""
    events = []
    for block in data.decode("utf-8").split("\n\n")[:-1]:
        if block.startswith(":"):
            continue
        name, _, payload = block.partition("\n")
        event = json.loads(payload.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The response that the deltas add up to; checks the order of the events and every snapshot in them."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    for event in events[:2]:
        assert (event["response"]["status"], event["response"]["output"]) == ("in_progress", [])
    assert events[-1]["type"] in TERMINAL
    items: list[dict[str, Any]] = []
    open_item: dict[str, Any] | None = None
    for event in events[2:-1]:
        kind = event["type"].removeprefix("response.")
        assert event["output_index"] == len(items) - (kind != "output_item.added")
        if kind == "output_item.added":
            assert open_item is None, "an item inside another"
            open_item = dict(event["item"])
            assert open_item["status"] == "in_progress"
            items.append(open_item)
            continue
        assert open_item is not None
        if kind == "output_item.done":
            open_item["status"] = event["item"]["status"]
            assert event["item"] == open_item
            open_item = None
            continue
        assert event["item_id"] == open_item["id"]
        _grow(open_item, kind, event)
    response: dict[str, Any] = events[-1]["response"]
    assert response["output"] == items
    return response


def _grow(item: dict[str, Any], kind: str, event: dict[str, Any]) -> None:
    field = {"function_call": "arguments", "custom_tool_call": "input"}.get(item["type"])
    if field is not None:
        assert kind.startswith(f"{item['type'].removesuffix('_tool_call') if field == 'arguments' else item['type']}_")
        if kind.endswith(".delta"):
            item[field] += event["delta"]
        else:
            assert event[field] == item[field]
        return
    assert event["content_index"] == 0
    if kind == "content_part.added":
        assert item["content"] == []
        item["content"].append(dict(event["part"]))
        return
    part = item["content"][0]
    if kind == "content_part.done":
        assert event["part"] == part
        return
    assert kind.startswith({"output_text": "output_text", "reasoning_text": "reasoning_text"}[part["type"]])
    if kind.endswith(".delta"):
        part["text"] += event["delta"]
        if part["type"] == "output_text":
            part["logprobs"] = part["logprobs"] + event["logprobs"]
    else:
        assert event["text"] == part["text"]
        assert event.get("logprobs", []) == part.get("logprobs", [])


def same(response: dict[str, Any]) -> dict[str, Any]:
    """A response without what differs between two turns: ids and times."""
    text = json.dumps({**response, "created_at": 0, "completed_at": response["completed_at"] is not None})
    text = re.sub(r"\b(resp|msg|rs|fc|ctc)_[0-9a-f]{16}", r"\1", text)
    found: dict[str, Any] = json.loads(re.sub(r"call_[0-9a-f]{16}", "call", text))
    return found


def both_ways(bench: Bench, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(response, events) of one request sent both ways, after checking that they say the same."""
    whole = bench.client.post(PATH, json=asked(**fields))
    assert whole.status_code == 200, whole.get_data(as_text=True)
    options = {"include_obfuscation": False}
    streamed = bench.client.post(PATH, json=asked(stream=True, stream_options=options, **fields))
    assert streamed.status_code == 200
    assert streamed.mimetype == "text/event-stream"
    events = read_named(streamed.data)
    body: dict[str, Any] = whole.get_json()
    assert same(assembled(events)) == same(body)
    return body, events
