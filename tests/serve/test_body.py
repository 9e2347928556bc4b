"""The request body: what is JSON, what is not, and what is JSON but no text or number."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dgpp.serve.errors import ApiError
from dgpp.serve.requests.body import MAX_DEPTH, parse_body
from tests.serve.support import NAME, Bench


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b'{"a": 1,}',
        b"{'a': 1}",
        b'{"a": 01}',
        b'{"a": "\x01"}',
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\xbd"}',  # a surrogate in UTF-8, which no UTF-8 has
        '{"a": 1}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
    ],
)
def test_api_2_body_is_refused(bench: Callable[..., Bench], raw: bytes) -> None:
    reply = bench().client.post("/v1/chat/completions", data=raw)
    assert reply.status_code == 400
    error = reply.get_json()["error"]
    assert error["param"] == "body"
    assert error["type"] == "invalid_request_error"
    assert error["code"] is None


def test_nesting_up_to_the_limit_is_taken() -> None:
    deep = b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1)
    assert list(parse_body(b'{"a": ' + deep + b"}")) == ["a"]


@pytest.mark.parametrize(
    ("fragment", "param"),
    [
        (r'"messages": [{"role": "user", "content": "emoji \ud83d"}]', "messages[0].content"),
        (r'"messages": [{"role": "user", "content": "\udc00 low"}]', "messages[0].content"),
        (
            r'"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "\ud83d"}}]}]',
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            r'"messages": [{"role": "user", "content": [{"type": "text", "text": "\ud83d"}]}]',
            "messages[0].content[0].text",
        ),
        (r'"stop": ["fine", "\uDBFF"]', "stop[1]"),
        (
            r'"response_format": {"json_schema": {"schema": {"properties": {"\ud83d": {}}}}}',
            "response_format.json_schema.schema.properties",
        ),
        (r'"\ud83d": 1', "body"),
        (r'"user": "\ud83d\ud83d\ude00"', "user"),
        (r'"unknown": {"deep": ["\ud83d"]}', "unknown.deep[0]"),
    ],
)
@pytest.mark.parametrize("stream", ["false", "true"])
def test_A5_unpaired_surrogate_names_the_field(
    bench: Callable[..., Bench], fragment: str, param: str, stream: str
) -> None:
    for path in ("/v1/chat/completions", "/v1/completions"):
        raw = f'{{"model": "{NAME}", "stream": {stream}, {fragment}}}'
        reply = bench().client.post(path, data=raw.encode("ascii"))
        assert reply.status_code == 400
        assert reply.mimetype == "application/json"
        assert reply.get_json()["error"]["param"] == param
        assert reply.get_json()["error"]["type"] == "invalid_request_error"


def test_A5_paired_surrogates_are_text(bench: Callable[..., Bench]) -> None:
    made = bench()
    raw = rf'{{"model": "{NAME}", "messages": [{{"role": "user", "content": "\ud83d\ude00"}}]}}'
    assert made.client.post("/v1/chat/completions", data=raw).status_code == 200
    assert bytes(id for id in made.engine.requests[0].prompt if id < 256).count("😀".encode()) == 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 400 + ".0"])
def test_not_a_number_names_the_field(bench: Callable[..., Bench], number: str) -> None:
    raw = f'{{"model": "{NAME}", "messages": [{{"role": "user", "content": "hi"}}], "temperature": {number}}}'
    reply = bench().client.post("/v1/chat/completions", data=raw)
    assert reply.status_code == 400
    assert reply.get_json()["error"]["param"] == "temperature"


def test_the_first_duplicate_key_is_kept_and_the_last_value_wins() -> None:
    body = parse_body(b'{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}')
    assert (body.duplicate, body["a"], body["b"].duplicate, body["b"]["c"]) == ("a", 3, "c", 2)
    assert parse_body(b'{"a": 1}').duplicate is None


def test_error_text_never_quotes_what_cannot_be_encoded() -> None:
    with pytest.raises(ApiError) as caught:
        parse_body(rb'{"a\ud83d": {"b": "\ud83d"}}')
    json.dumps(caught.value.body(), ensure_ascii=False).encode("utf-8")
