"""Every error row of the contract that concerns a field, and the order in which fields are judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dgpp.serve.requests.body import JsonObject
from dgpp.serve.requests.chat import CHAT_FIELDS, parse_chat
from dgpp.serve.requests.completion import COMPLETION_FIELDS, parse_completion
from dgpp.serve.requests.fields import Field
from dgpp.serve.requests.served import Served
from tests.serve.support import NAME, Bench, chat, user

LONG = "x" * 10_000
UNSUPPORTED = "unsupported_parameter"
INVALID = "invalid_parameter"

# (fields over a valid chat request, code, param); the status is 400.
CHAT_ROWS: list[tuple[dict[str, Any], str | None, str]] = [
    ({"model": None}, None, "model"),
    ({"model": 3}, None, "model"),
    *[({key: None}, UNSUPPORTED, key) for key in ("web_search_options", "functions", "function_call")],
    ({"prompt_cache_options": {}}, UNSUPPORTED, "prompt_cache_options"),
    *[
        ({key: "x"}, UNSUPPORTED, key)
        for key in ("audio", "prediction", "moderation", "prompt_cache_key", "prompt_cache_retention", "verbosity")
    ],
    ({"store": True}, UNSUPPORTED, "store"),
    ({"store": "no"}, INVALID, "store"),
    ({"store": 0}, INVALID, "store"),
    ({"service_tier": "flex"}, UNSUPPORTED, "service_tier"),
    ({"service_tier": 1}, UNSUPPORTED, "service_tier"),
    ({"modalities": ["text", "audio"]}, UNSUPPORTED, "modalities"),
    ({"modalities": "text"}, UNSUPPORTED, "modalities"),
    ({"user": 5}, INVALID, "user"),
    ({"safety_identifier": 5}, INVALID, "safety_identifier"),
    ({"safety_identifier": "x" * 65}, INVALID, "safety_identifier"),
    ({"metadata": []}, INVALID, "metadata"),
    ({"metadata": {str(i): "" for i in range(17)}}, INVALID, "metadata"),
    ({"metadata": {"x" * 65: ""}}, INVALID, "metadata"),
    ({"metadata": {"a": "x" * 513}}, INVALID, "metadata"),
    ({"metadata": {"a": 1}}, INVALID, "metadata"),
    ({"max_tokens": 5, "max_completion_tokens": 5}, None, "max_tokens"),
    *[
        ({key: value}, None, key)
        for key in ("max_tokens", "max_completion_tokens")
        for value in (0, -1, 2**31, 1.5, "5", True, [], 1e300)
    ],
    *[({key: value}, None, key) for key in ("ignore_eos", "prefix_cache") for value in (None, 1, "true")],
    ({"stream": 1}, None, "stream"),
    ({"stream": "true"}, None, "stream"),
    ({"stream_options": {"include_usage": True}}, None, "stream_options"),
    ({"stream": False, "stream_options": {}}, None, "stream_options"),
    ({"stream": True, "stream_options": []}, None, "stream_options"),
    ({"stream": True, "stream_options": {"x": 1}}, UNSUPPORTED, "stream_options.x"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, None, "stream_options.include_usage"),
    ({"stream": True, "stream_options": {"include_obfuscation": None}}, None, "stream_options.include_obfuscation"),
    ({"sse_ping_interval": 5}, None, "sse_ping_interval"),
    *[({"stream": True, "sse_ping_interval": v}, None, "sse_ping_interval") for v in (None, 0, -2, 2**31, "5", True)],
    *[({"temperature": value}, None, "temperature") for value in (-0.1, 2.1, "1", True, [])],
    *[({"top_p": value}, None, "top_p") for value in (-0.1, 1.1, "1")],
    *[({"top_k": value}, None, "top_k") for value in (-1, 2**31, 1.5, "1")],
    *[({"min_p": value}, None, "min_p") for value in (-0.1, 1.1)],
    *[({"repetition_penalty": value}, None, "repetition_penalty") for value in (0, -1, 100.5, "1")],
    *[({key: value}, None, key) for key in ("presence_penalty", "frequency_penalty") for value in (-2.1, 2.1, "0")],
    *[({"seed": value}, None, "seed") for value in (2**63, -(2**63) - 1, 1.0, "1", True)],
    *[({"logprobs": value}, None, "logprobs") for value in (1, "true")],
    *[({"logprobs": True, "top_logprobs": value}, None, "top_logprobs") for value in (-1, 21, 1.5, True)],
    ({"top_logprobs": 1}, None, "top_logprobs"),
    ({"logprobs": False, "top_logprobs": 0}, None, "top_logprobs"),
    *[({"n": value}, None, "n") for value in (0, 129, 1.5, "1", True)],
    *[({"stop": value}, None, "stop") for value in ("", [], ["a", ""], [1], ["a"] * 5, 7, {})],
    ({"logit_bias": []}, None, "logit_bias"),
    ({"logit_bias": {str(i): 0 for i in range(1025)}}, None, "logit_bias"),
    *[
        ({"logit_bias": {key: 0}}, None, "logit_bias")
        for key in ("x", "-1", "+1", "1.0", " 1", "", "512", "1" * 13, "\u0661")
    ],
    *[({"logit_bias": {"1": value}}, None, "logit_bias") for value in (100.5, -101, "0", None, True)],
    ({"logit_bias": {"1": 0, "01": 0}}, None, "logit_bias"),
    ({"messages": None}, None, "messages"),
    ({"messages": []}, None, "messages"),
    ({"messages": "hi"}, None, "messages"),
    ({"messages": {}}, None, "messages"),
    ({"messages": ["hi"]}, None, "messages[0]"),
    ({"messages": [*user(), {"role": "robot", "content": "x"}]}, None, "messages[1].role"),
    ({"messages": [{"role": "user"}]}, None, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/"}}]}]},
        "unsupported_content_type",
        "messages[0].content[0].type",
    ),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools_unsupported", "tools"),
    ({"tools": {}}, None, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "f g"}}]}, None, "tools[0].function.name"),
    ({"tool_choice": "required"}, None, "tool_choice"),
    ({"parallel_tool_calls": 1}, None, "parallel_tool_calls"),
    ({"response_format": "json"}, None, "response_format"),
    ({"response_format": {"type": "xml"}}, None, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, None, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, None, "response_format.json_schema.name"),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "strict": True, "schema": {"not": {}}},
            }
        },
        "unsupported_schema",
        "response_format.json_schema.schema.not",
    ),
    ({"response_format": {"type": "regex", "pattern": "("}}, "invalid_grammar", "response_format.pattern"),
    ({"reasoning_effort": "high"}, "unsupported_reasoning_effort", "reasoning_effort"),
    ({"reasoning_effort": "huge"}, None, "reasoning_effort"),
    ({"chat_template_kwargs": {"enable_thinking": False}}, UNSUPPORTED, "chat_template_kwargs.enable_thinking"),
    ({"chat_template_kwargs": None}, None, "chat_template_kwargs"),
    ({"continue_final_message": 1}, None, "continue_final_message"),
    ({"continue_final_message": True}, None, "continue_final_message"),
    *[({"min_tokens": value}, None, "min_tokens") for value in (-1, 1.5, "1", True)],
    ({"min_tokens": 9, "max_tokens": 8}, None, "min_tokens"),
    *[({"thinking_budget": value}, None, "thinking_budget") for value in (-1, 1.5, "1", True)],
    ({"cache_salt": 1}, None, "cache_salt"),
]


@pytest.mark.parametrize(("fields", "code", "param"), CHAT_ROWS, ids=lambda value: json.dumps(value)[:60])
def test_api_2_chat_field(bench: Callable[..., Bench], fields: dict[str, Any], code: str | None, param: str) -> None:
    made = bench()
    reply = made.client.post("/v1/chat/completions", json=chat(**fields))
    error = reply.get_json()["error"]
    assert (reply.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["code"], error["param"]) == (code, param)
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert made.engine.requests == []
    assert made.counts()["rejects_bad"] == 1


@pytest.mark.parametrize(
    "fields",
    [
        {key: None}
        for key in (
            *("max_tokens", "max_completion_tokens", "stream", "stream_options", "temperature", "top_p", "top_k"),
            *("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "logprobs"),
            *("top_logprobs", "n", "stop", "logit_bias", "reasoning_effort", "store", "service_tier", "modalities"),
            *("metadata", "user", "safety_identifier", "audio", "prediction", "tools", "tool_choice"),
            *("parallel_tool_calls", "response_format"),
        )
    ]
    + [
        {"preserveThinking": 1, "preserve_thinking": [], "extra": {}},
        {"max_tokens": 5.0, "top_k": 3.0, "n": 1.0},
        {"max_tokens": None, "max_completion_tokens": 7},
        {"max_tokens": 1},
        {"seed": 2**63 - 1},
        {"seed": -(2**63)},
        {"temperature": 2, "top_p": 0, "top_k": 0, "min_p": 1, "repetition_penalty": 100},
        {"presence_penalty": -2, "frequency_penalty": 2},
        {"logprobs": True, "top_logprobs": 20},
        {"logprobs": True},
        {"stop": "x"},
        {"stop": ["a", "b", "c", "d"]},
        {"logit_bias": {}},
        {"logit_bias": {"511": -100, "0": 100.0}},
        {"stream": True, "sse_ping_interval": -1},
        {"stream": True, "sse_ping_interval": 2**31 - 1, "stream_options": {}},
        {"metadata": {"x" * 64: "é" * 512}, "safety_identifier": "é" * 64, "user": LONG},
        {"store": False, "service_tier": "auto", "modalities": ["text"]},
        {"tools": [], "tool_choice": "none", "parallel_tool_calls": False, "response_format": {"type": "text"}},
        {"chat_template_kwargs": {}, "continue_final_message": False, "min_tokens": 0},
        {"min_tokens": 8, "max_tokens": 8},
        {"reasoning_effort": "none"},
        {"thinking_budget": 0, "cache_salt": "tenant"},
        {"ignore_eos": False, "prefix_cache": False},
        {"model": "alias"},
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_api_3_accepted(bench: Callable[..., Bench], fields: dict[str, Any]) -> None:
    assert bench().client.post("/v1/chat/completions", json=chat(**fields)).status_code == 200


COMPLETION_ROWS: list[tuple[dict[str, Any], str | None, str]] = [
    ({"model": None}, None, "model"),
    ({"prompt": None}, None, "prompt"),
    ({"prompt": ["a"]}, None, "prompt"),
    ({"prompt": [1, 2]}, None, "prompt"),
    ({"prompt": ""}, None, "prompt"),
    ({"echo": 1}, None, "echo"),
    ({"echo": True, "logprobs": 1}, UNSUPPORTED, "echo"),
    ({"suffix": "x"}, UNSUPPORTED, "suffix"),
    ({"tools": [{}]}, UNSUPPORTED, "tools"),
    ({"best_of": 0}, None, "best_of"),
    ({"best_of": 2, "n": 3}, None, "best_of"),
    ({"best_of": 2, "stream": True}, None, "best_of"),
    ({"min_tokens": 2, "max_tokens": 1}, None, "min_tokens"),
    ({"response_format": {"type": "xml"}}, None, "response_format.type"),
    ({"top_logprobs": 2}, UNSUPPORTED, "top_logprobs"),
    ({"user": 1}, INVALID, "user"),
    ({"max_tokens": 0}, None, "max_tokens"),
    *[({"logprobs": value}, None, "logprobs") for value in (-1, 6, True, "1")],
    ({"n": 0}, None, "n"),
    ({"stop": []}, None, "stop"),
    ({"logit_bias": {"512": 1}}, None, "logit_bias"),
    ({"temperature": 3}, None, "temperature"),
    ({"ignore_eos": None}, None, "ignore_eos"),
    ({"stream_options": {}}, None, "stream_options"),
    ({"sse_ping_interval": 1}, None, "sse_ping_interval"),
]


@pytest.mark.parametrize(("fields", "code", "param"), COMPLETION_ROWS, ids=lambda value: json.dumps(value)[:60])
def test_api_12_completion_field(
    bench: Callable[..., Bench], fields: dict[str, Any], code: str | None, param: str
) -> None:
    reply = bench().client.post("/v1/completions", json={"model": NAME, "prompt": "a", **fields})
    error = reply.get_json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, code, param)


def test_A1_unknown_model(bench: Callable[..., Bench]) -> None:
    for path, body in (("/v1/chat/completions", chat(model="gpt")), ("/v1/completions", {"model": "gpt"})):
        reply = bench().client.post(path, json=body)
        error = reply.get_json()["error"]
        assert (reply.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_api_2_duplicate_key(bench: Callable[..., Bench], path: str) -> None:
    raw = f'{{"model": "{NAME}", "prompt": "a", "messages": [], "seed": 1, "seed": 2}}'
    reply = bench().client.post(path, data=raw)
    error = reply.get_json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, INVALID, "seed")


def test_duplicate_bias_key(bench: Callable[..., Bench]) -> None:
    raw = json.dumps(chat())[:-1] + ', "logit_bias": {"1": 1, "1": 2}}'
    reply = bench().client.post("/v1/chat/completions", data=raw)
    assert (reply.status_code, reply.get_json()["error"]["param"]) == (400, "logit_bias")


def test_api_2_the_first_failure_in_order_is_named(bench: Callable[..., Bench]) -> None:
    """With every field wrong the first is named; once it is right, the next, down to the last."""
    wrong: dict[str, Any] = {
        "model": 1,
        "verbosity": "low",
        "store": True,
        "service_tier": "flex",
        "modalities": [],
        "user": 1,
        "metadata": 1,
        "max_tokens": 0,
        "min_tokens": -1,
        "ignore_eos": 1,
        "stream": 1,
        "stream_options": 1,
        "sse_ping_interval": 0,
        "prefix_cache": 1,
        "cache_salt": 1,
        "temperature": 9,
        "seed": "x",
        "logprobs": 1,
        "n": 0,
        "stop": [],
        "logit_bias": 1,
        "messages": [],
        "continue_final_message": 1,
        "tools": {},
        "tool_choice": 1,
        "parallel_tool_calls": 1,
        "response_format": [],
        "thinking_budget": -1,
        "reasoning_effort": "huge",
        "chat_template_kwargs": [],
    }
    right = {"model": NAME, "messages": [{"role": "robot"}]}
    made, body, named = bench(), dict(wrong), []
    while True:
        reply = made.client.post("/v1/chat/completions", json=body)
        param = reply.get_json()["error"]["param"]
        if param == "messages[0].role":
            break
        named.append(param)
        body[param] = right.get(param)
        if body[param] is None:
            del body[param]
    assert named == list(wrong)


class Seen(JsonObject):
    """A body that knows which of its keys were asked for."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.seen.add(str(key))
        return super().__contains__(key)


@pytest.mark.parametrize(
    ("parse", "fields", "body"),
    [
        (parse_chat, CHAT_FIELDS, {"model": NAME, "messages": user()}),
        (parse_completion, COMPLETION_FIELDS, {"model": NAME, "prompt": "a"}),
    ],
)
def test_the_declared_fields_are_those_that_are_read(
    parse: Any, fields: tuple[Field, ...], body: dict[str, Any]
) -> None:
    """The API description is made of them."""
    seen = Seen(body)
    parse(seen, Served((NAME,), 512))
    assert seen.seen == {field.name for field in fields}
    assert len({field.name for field in fields}) == len(fields)
