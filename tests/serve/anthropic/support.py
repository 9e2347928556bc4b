"""Requests to /v1/messages, and messages put together from the deltas of a stream."""

from __future__ import annotations

import json
import re
from typing import Any

import jiter

from tests.serve.responses.support import read_named
from tests.serve.support import NAME, Bench, user

PATH = "/v1/messages"


def asked(**fields: Any) -> dict[str, Any]:
    """A request body."""
    return {"model": NAME, "max_tokens": 40, "messages": user(), "temperature": 0, **fields}


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events add up to, read as the official client reads them; checks their order."""
    assert events[0]["type"] == "message_start"
    assert events[-1] == {"type": "message_stop"}
    message: dict[str, Any] = dict(events[0]["message"])
    assert (message["content"], message["stop_reason"], message["stop_sequence"]) == ([], None, None)
    block: dict[str, Any] | None = None
    arguments = ""
    for event in events[1:-2]:
        if event["type"] == "ping":
            continue
        if event["type"] == "content_block_start":
            assert block is None, "a block inside another"
            assert event["index"] == len(message["content"])
            block, arguments = dict(event["content_block"]), ""
            message["content"].append(block)
            continue
        assert block is not None
        assert event["index"] == len(message["content"]) - 1
        if event["type"] == "content_block_stop":
            block = None
            continue
        assert event["type"] == "content_block_delta"
        match event["delta"]:
            case {"type": "text_delta", "text": text}:
                block["text"] += text
            case {"type": "thinking_delta", "thinking": text}:
                assert block["signature"] == ""
                block["thinking"] += text
            case {"type": "signature_delta", "signature": text}:
                block["signature"] = text
            case {"type": "input_json_delta", "partial_json": text}:
                arguments += text
                block["input"] = jiter.from_json(arguments.encode(), partial_mode=True)
            case delta:
                raise AssertionError(delta)
    assert block is None
    assert events[-2]["type"] == "message_delta"
    return {**message, **events[-2]["delta"], "usage": events[-2]["usage"]}


def same(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what differs between two turns: ids."""
    found: dict[str, Any] = json.loads(re.sub(r"\b(msg|toolu)_[0-9a-f]{16}", r"\1", json.dumps(message)))
    return found


def both_ways(bench: Bench, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(message, events) of one request sent both ways, after checking that they say the same."""
    whole = bench.client.post(PATH, json=asked(**fields))
    assert whole.status_code == 200, whole.get_data(as_text=True)
    streamed = bench.client.post(PATH, json=asked(stream=True, **fields))
    assert streamed.status_code == 200
    assert streamed.mimetype == "text/event-stream"
    events = read_named(streamed.data)
    body: dict[str, Any] = whole.get_json()
    assert same(assembled(events)) == same(body)
    return body, events
