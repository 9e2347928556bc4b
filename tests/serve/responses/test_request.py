"""Responses requests as chat requests: what each item becomes, and which field an error names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dgpp.serve.requests.body import JsonObject
from dgpp.serve.responses.request import translate
from tests.serve.responses.support import PATH, asked
from tests.serve.support import Bench


def translated(**fields: Any) -> JsonObject:
    return translate(JsonObject(asked(**fields))).chat


def messages(*items: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = translated(input=list(items), **fields)["messages"]
    return found


CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
THOUGHT = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def test_a_string_is_a_user_message() -> None:
    assert translated(input="hi", instructions="Be brief.")["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]


def test_message_items() -> None:
    found = messages(
        {"role": "developer", "content": "a"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}, part("c")]},
        {"role": "assistant", "content": "d"},
    )
    assert [message["role"] for message in found] == ["developer", "user", "assistant"]
    texts = [[item["text"] for item in message["content"]] for message in found]
    assert texts == [["a"], ["b", "c"], ["d"]]
    assert {item["type"] for message in found for item in message["content"]} == {"text"}


def test_the_items_of_one_answer_are_one_message() -> None:
    other = {**CALL, "call_id": "c2"}
    assert messages({"role": "user", "content": "x"}, THOUGHT, said("Let me see."), CALL, other, OUTPUT)[1:] == [
        {
            "role": "assistant",
            "reasoning_content": "Hm.",
            "content": [{"type": "text", "text": "Let me see."}],
            "tool_calls": [CHAT_CALL, {**CHAT_CALL, "id": "c2"}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]


def test_two_answers_are_two_messages() -> None:
    assert messages(said("a"), THOUGHT, said("b"), said("c")) == [
        {"role": "assistant", "content": [part("a")]},
        {"role": "assistant", "reasoning_content": "Hm.", "content": [part("b")]},
        {"role": "assistant", "content": [part("c")]},
    ]


def test_results_follow_the_message_with_their_calls() -> None:
    found = messages(CALL, said("a"), THOUGHT, OUTPUT)
    assert [message["role"] for message in found] == ["assistant", "tool"]
    assert found[0] == {
        "role": "assistant",
        "tool_calls": [CHAT_CALL],
        "content": [part("a")],
        "reasoning_content": "Hm.",
    }


def test_thinking_of_other_servers() -> None:
    summary = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": t} for t in ("a", "b")]}
    assert messages(summary, said("x"))[0]["reasoning_content"] == "a\n\nb"
    encrypted = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "gAAA"}
    assert messages({"role": "user", "content": "x"}, encrypted)[1:] == []
    assert messages(encrypted, said("x")) == [{"role": "assistant", "content": [part("x")]}]


def test_custom_calls() -> None:
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "ls"}
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a"}]}
    assert messages(call, output) == [
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "run", "input": "ls"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": [part("a")]},
    ]


def test_files_are_file_parts() -> None:
    file = {"type": "input_file", "filename": "a.txt", "file_data": "aGk=", "detail": "auto"}
    assert messages({"role": "user", "content": [file]})[0]["content"] == [
        {"type": "file", "file": {"file_data": "aGk=", "filename": "a.txt"}}
    ]


def test_tools_and_choices() -> None:
    grammar = {"type": "grammar", "syntax": "regex", "definition": "a+"}
    body = translated(
        tools=[
            {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True},
            {"type": "custom", "name": "c", "format": grammar},
            {"type": "custom", "name": "t", "format": {"type": "text"}},
        ],
        tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        parallel_tool_calls=False,
    )
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True},
        },
        {
            "type": "custom",
            "custom": {
                "name": "c",
                "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}},
            },
        },
        {"type": "custom", "custom": {"name": "t", "format": {"type": "text"}}},
    ]
    assert body["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
    }
    assert body["parallel_tool_calls"] is False
    for kind in ("function", "custom"):
        choice = translated(tool_choice={"type": kind, "name": "f"})["tool_choice"]
        assert choice == {"type": kind, kind: {"name": "f"}}
    assert translated(tool_choice="required")["tool_choice"] == "required"


def test_other_fields() -> None:
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    body = translated(text={"format": schema, "verbosity": "medium"}, reasoning={"effort": "high", "summary": "auto"})
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    }
    assert body["reasoning_effort"] == "high"
    assert translated(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    body = translated(max_output_tokens=3, seed=4, min_p=0.1, top_k=5, stop=["a"], thinking_budget=6)
    fields = ("max_tokens", "seed", "min_p", "top_k", "stop", "thinking_budget")
    assert [body[key] for key in fields] == [3, 4, 0.1, 5, ["a"], 6]


def test_null_is_omitted() -> None:
    keys = (
        *("instructions", "tools", "tool_choice", "text", "reasoning", "include", "max_output_tokens", "temperature"),
        *("previous_response_id", "conversation", "background", "store", "truncation", "prompt_cache_key", "prompt"),
    )
    assert set(translated(**dict.fromkeys(keys))) == {"model", "messages"}


def test_without_effect(bench: Callable[..., Bench]) -> None:
    accepted = {
        "store": False,
        "background": False,
        "truncation": "disabled",
        "prompt_cache_key": "k",
        "include": ["reasoning.encrypted_content"],
        "client_metadata": {"a": "b"},
        "tool_choice": "auto",
        "tools": [],
        "user": "me",
    }
    assert bench().client.post(PATH, json=asked(**accepted)).status_code == 200


USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": None}, None, "input"),
        ({"input": []}, None, "input"),
        ({"input": [1]}, None, "input[0]"),
        ({"input": [{"role": "tool", "content": "x"}]}, None, "input[0].role"),
        ({"input": [USER, {"role": "user", "content": None}]}, None, "input[1].content"),
        ({"input": [{"role": "user", "content": ["x"]}]}, None, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, None, "input[0].content[0].text"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x/y.png"}]}]},
            "unsupported_content_type",
            "input[0].content[0].type",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "http://x/y.pdf"}]}]},
            "unsupported_parameter",
            "input[0].content[0].file_url",
        ),
        (
            {"input": [said("a"), {"role": "assistant", "content": [part("a"), {"type": "odd"}]}], "instructions": "i"},
            "unsupported_content_type",
            "input[1].content[1].type",
        ),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "unsupported_parameter", "input[0].type"),
        ({"input": [{"type": "web_search_call"}]}, "unsupported_parameter", "input[0].type"),
        ({"input": [{"type": ["message"]}]}, "unsupported_parameter", "input[0].type"),
        ({"input": [THOUGHT, {**CALL, "arguments": "{"}, OUTPUT]}, None, "input[1].arguments"),
        ({"input": [{**CALL, "arguments": None}]}, None, "input[0].arguments"),
        ({"input": [{**CALL, "name": None}]}, None, "input[0].name"),
        ({"input": [{**CALL, "call_id": 1}]}, None, "input[0].call_id"),
        ({"input": [CALL, {**OUTPUT, "call_id": None}]}, None, "input[1].call_id"),
        ({"input": [CALL, {**OUTPUT, "output": 3}]}, None, "input[1].output"),
        (
            {"input": [CALL, {**OUTPUT, "output": [{"type": "input_image", "image_url": "data:"}]}]},
            "unsupported_content_type",
            "input[1].output[0].type",
        ),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "a b", "input": ""}]}, None, "input[0].name"),
        ({"input": [{"type": "reasoning", "content": [{"text": 1}]}]}, None, "input[0].content[0].text"),
        ({"input": [{"type": "reasoning", "summary": 1}]}, None, "input[0].summary"),
        ({"input": "refuse"}, None, "input"),
        ({"instructions": 3}, None, "instructions"),
        ({"max_output_tokens": 0}, None, "max_output_tokens"),
        ({"max_output_tokens": 1000}, "context_length_exceeded", "max_output_tokens"),
        ({"temperature": 3}, None, "temperature"),
        ({"top_logprobs": 21}, None, "top_logprobs"),
        ({"metadata": {"a": 1}}, "invalid_parameter", "metadata"),
        ({"stream": 1}, None, "stream"),
        ({"stream_options": {}}, None, "stream_options"),
        ({"store": True}, "unsupported_parameter", "store"),
        ({"background": True}, "unsupported_parameter", "background"),
        ({"truncation": "auto"}, "unsupported_parameter", "truncation"),
        ({"previous_response_id": "resp_1"}, "unsupported_parameter", "previous_response_id"),
        ({"conversation": "conv_1"}, "unsupported_parameter", "conversation"),
        ({"prompt": {"id": "p"}}, "unsupported_parameter", "prompt"),
        ({"max_tool_calls": 1}, "unsupported_parameter", "max_tool_calls"),
        ({"include": ["file_search_call.results"]}, "unsupported_parameter", "include[0]"),
        ({"include": "x"}, None, "include"),
        ({"prompt_cache_key": 1}, None, "prompt_cache_key"),
        ({"tools": [{"type": "file_search"}]}, "unsupported_parameter", "tools[0].type"),
        ({"tools": [{"type": "computer_use_preview"}]}, "unsupported_parameter", "tools[0].type"),
        ({"tools": {}}, None, "tools"),
        ({"tools": [1]}, None, "tools[0]"),
        ({"tool_choice": {"type": "mcp"}}, "unsupported_parameter", "tool_choice.type"),
        ({"text": "x"}, None, "text"),
        ({"text": {"format": "x"}}, None, "text.format"),
        ({"text": {"verbosity": "high"}}, "unsupported_parameter", "text.verbosity"),
        ({"reasoning": "x"}, None, "reasoning"),
        ({"reasoning": {"summary": "long"}}, None, "reasoning.summary"),
        ({"model": "gpt"}, "model_not_found", "model"),
    ],
)
def test_errors_name_what_was_sent(
    bench: Callable[..., Bench], fields: dict[str, Any], code: str | None, param: str
) -> None:
    reply = bench().client.post(PATH, json=asked(**fields))
    error = reply.get_json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (
        404 if code == "model_not_found" else 400,
        code,
        param,
    )
    assert "messages[" not in error["message"]
    assert "max_tokens" not in error["message"]


def test_a_key_given_twice(bench: Callable[..., Bench]) -> None:
    body = b'{"model": "scripted/tiny", "input": "a", "input": "b"}'
    reply = bench().client.post(PATH, data=body)
    assert (reply.status_code, reply.get_json()["error"]["param"]) == (400, "input")
