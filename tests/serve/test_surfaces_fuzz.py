"""Broken requests to the Responses and Messages APIs: refused with the field named, never failed on."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from dgpp.serve.anthropic.errors import ROOT
from dgpp.serve.anthropic.fields import COUNT_FIELDS, MESSAGE_FIELDS
from dgpp.serve.requests.fields import Field
from dgpp.serve.responses.fields import RESPONSE_FIELDS
from tests.serve.anthropic.support import PATH as MESSAGES
from tests.serve.responses.support import PATH as RESPONSES
from tests.serve.support import MARKERS, NAME, Bench
from tests.text.templates import QWEN38

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}, "required": ["a"]}
RESPONSE: dict[str, Any] = {
    "model": NAME,
    "instructions": "i",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "a"},
                {"type": "input_file", "file_data": "aGk=", "filename": "a.txt"},
            ],
        },
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}], "content": None},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b", "annotations": []}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}', "namespace": "s"},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "x"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "o"}]},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "o"},
    ],
    "tools": [
        {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
        {"type": "namespace", "name": "s", "description": "d", "tools": [{"type": "function", "name": "h"}]},
        {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "parallel_tool_calls": True,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}, "verbosity": "medium"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 1,
    "max_output_tokens": 2,
    "temperature": 0,
    "metadata": {"k": "v"},
    "truncation": "disabled",
}
MESSAGE: dict[str, Any] = {
    "model": NAME,
    "max_tokens": 2,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "b"},
                {"type": "tool_use", "id": "u", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "u",
                    "content": [{"type": "text", "text": "r"}],
                    "is_error": True,
                },
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}, "title": "t"},
                {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "c"}]}},
            ],
        },
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True}],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 5, "display": "omitted"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "stop_sequences": ["x"],
    "metadata": {"user_id": "m"},
    "temperature": 0,
}
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 2**70, 1e300, "", "x", "\u0000", "/", [], [None], [[]], ["x"], {}, {"": {}}),
    *({"type": "text"}, {"type": None}, {"type": ["x"]}, [{"type": {}}], {"role": "user", "content": {}}),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def broken(body: dict[str, Any], path: tuple[Any, ...], value: Any, *, absent: bool = False) -> dict[str, Any]:
    """A copy with another value, or none, at a place."""
    copied = copy.deepcopy(body)
    at: Any = copied
    for key in path[:-1]:
        at = at[key]
    if absent:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return copied


@pytest.mark.parametrize(
    ("fields", "body"), [(RESPONSE_FIELDS, RESPONSE), (MESSAGE_FIELDS, MESSAGE)], ids=["responses", "messages"]
)
def test_every_field_is_described(fields: tuple[Field, ...], body: dict[str, Any]) -> None:
    described = {field.name: field for field in fields}
    assert len(described) == len(fields)
    for name, value in body.items():
        assert described[name].doc
        jsonschema.validate(value, described[name].schema)
    assert {field.name for field in COUNT_FIELDS} <= {field.name for field in MESSAGE_FIELDS}


@pytest.mark.parametrize(("path", "body"), [(RESPONSES, RESPONSE), (MESSAGES, MESSAGE)], ids=["responses", "messages"])
def test_no_body_is_failed_on(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture, path: str, body: dict[str, Any]
) -> None:
    made = bench(
        "x</think>\n\ny", template=QWEN38, markers=MARKERS, info=Bench.info(position_ceiling=4096, queue_limit=0)
    )
    assert made.client.post(path, json=body).status_code == 200
    chance = random.Random(1)
    bodies = [broken(body, place, None, absent=True) for place in places(body)]
    bodies += [broken(body, place, value) for place in places(body) for value in chance.sample(VALUES, 4)]
    refused = 0
    for sent in bodies:
        reply = made.client.post(path, json=sent)
        assert reply.status_code in (200, 400, 404, 413), (sent, reply.get_data(as_text=True))
        if reply.status_code != 200:
            refused += 1
            error = reply.get_json()["error"]
            assert error["type"].endswith("error")
            assert error["message"]
            assert path == ROOT or error["param"] is not None, (sent, error)
    assert refused > len(bodies) // 3
    assert not [record for record in caplog.records if record.exc_info]
