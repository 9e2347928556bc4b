"""Messages requests as chat requests: what each block becomes, and which field an error names."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from dgpp.serve.anthropic.request import translate
from dgpp.serve.requests.body import JsonObject
from dgpp.serve.requests.thinking import Controls
from tests.serve.anthropic.support import PATH, asked
from tests.serve.support import NAME, Bench, user

SWITCH = Controls(frozenset({"enable_thinking"}), {}, True)
ALWAYS = Controls(frozenset(), {}, True)
PLAIN = Controls()


def translated(controls: Controls = PLAIN, **fields: Any) -> JsonObject:
    return translate(JsonObject(asked(**fields)), controls).chat


def messages(*sent: tuple[str, Any], **fields: Any) -> list[dict[str, Any]]:
    turns = [{"role": role, "content": content} for role, content in sent]
    found: list[dict[str, Any]] = translated(messages=turns, **fields)["messages"]
    return found


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
CALL = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
BETWEEN = text("\n\n")


def result(content: Any = "42", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t1", "content": content, **fields}


def test_system_blocks_are_paragraphs() -> None:
    blocks = [{**text("a"), "cache_control": {"type": "ephemeral"}}, text("b")]
    assert messages(("user", "hi"), system=blocks)[:2] == [
        {"role": "system", "content": "a"},
        {"role": "system", "content": "b"},
    ]
    assert messages(("user", "hi"), system="a")[0] == {"role": "system", "content": "a"}


def test_a_turn_with_tools() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    redacted = {"type": "redacted_thinking", "data": "x"}
    found = messages(
        ("user", [{**text("a"), "cache_control": {"type": "ephemeral"}}]),
        ("assistant", [thinking, redacted, text("b"), USE, {**USE, "id": "t2"}]),
        ("user", [result(), {**result([text("c"), text("d")]), "tool_use_id": "t2"}, text("e")]),
    )
    assert found == [
        {"role": "user", "content": [text("a")]},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Hm."}, text("b")],
            "tool_calls": [CALL, {**CALL, "id": "t2"}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": [text("42")]},
        {"role": "tool", "tool_call_id": "t2", "content": [text("c"), BETWEEN, text("d")]},
        {"role": "user", "content": [text("e")]},
    ]


def test_neighbours_of_one_role_are_one_message() -> None:
    found = messages(
        ("user", "a"), ("user", [text("b")]), ("assistant", "c"), ("assistant", [USE]), ("user", [result()])
    )
    assert [message["role"] for message in found] == ["user", "assistant", "tool"]
    assert found[0]["content"] == [text("a"), BETWEEN, text("b")]
    assert found[1] == {"role": "assistant", "content": [text("c")], "tool_calls": [CALL]}


def test_a_result_that_is_an_error_says_so() -> None:
    found = messages(("assistant", [USE]), ("user", [result("no such file", is_error=True)]))
    assert "".join(part["text"] for part in found[1]["content"]) == "Error: no such file"
    found = messages(("assistant", [USE]), ("user", [result([text("a"), text("b")], is_error=True)]))
    assert "".join(part["text"] for part in found[1]["content"]) == "Error: a\n\nb"
    for empty in ({}, {"is_error": False}):
        found = messages(("assistant", [USE]), ("user", [{**result(None), **empty}]))
        assert found[1]["content"] == [text("")]


def test_empty_messages_stay() -> None:
    assert messages(("user", []), ("assistant", [{"type": "redacted_thinking", "data": "x"}]), ("user", "a")) == [
        {"role": "user", "content": []},
        {"role": "assistant", "content": []},
        {"role": "user", "content": [text("a")]},
    ]


def test_documents_are_files_or_text() -> None:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    plain = {"type": "text", "media_type": "text/plain", "data": "hé"}
    blocks = [
        {"type": "document", "source": pdf, "title": "a.pdf"},
        {"type": "document", "source": plain},
        {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
        {"type": "document", "source": {"type": "content", "content": [text("x")]}},
        {"type": "document", "source": {"type": "content", "content": "y"}},
        {"type": "document", "source": plain, "title": "b.txt"},
    ]
    data = base64.b64encode("hé".encode()).decode()
    assert messages(("user", blocks))[0]["content"] == [
        {"type": "file", "file": {"file_data": "JVBERi0=", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": data, "filename": "document.txt"}},
        {"type": "file", "file": {"file_id": "file-1", "filename": None}},
        text("x"),
        BETWEEN,
        text("y"),
        {"type": "file", "file": {"file_data": data, "filename": "b.txt"}},
    ]


def test_an_answer_that_is_begun_goes_on() -> None:
    assert translated(messages=[*user(), {"role": "assistant", "content": "The"}])["continue_final_message"] is True
    assert "continue_final_message" not in translated()
    assert "continue_final_message" not in translated(messages=[*user(), {"role": "assistant", "content": [USE]}])


def test_tools_and_choices() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = {"name": "f", "description": "d", "input_schema": schema, "cache_control": {"type": "ephemeral"}}
    body = translated(tools=[tool, {"type": "custom", "name": "g", "input_schema": schema, "strict": True}])
    assert body["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": schema, "description": "d"}},
        {"type": "function", "function": {"name": "g", "parameters": schema, "strict": True}},
    ]
    assert "tool_choice" not in body
    assert "tool_choice" not in translated(tool_choice={"type": "auto"})
    for kind, chat in (("any", "required"), ("none", "none")):
        assert translated(tool_choice={"type": kind})["tool_choice"] == chat
    named = translated(tool_choice={"type": "tool", "name": "f", "disable_parallel_tool_use": True})
    assert named["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert named["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in translated(tool_choice={"type": "auto", "disable_parallel_tool_use": False})
    assert "tools" not in translated(tools=[])


EFFORTS = Controls(
    frozenset({"enable_thinking", "reasoning_effort"}), {"low": "low", "high": "high", "max": "high"}, True
)


@pytest.mark.parametrize(
    ("controls", "thinking", "effort", "expected"),
    [
        (SWITCH, None, None, {}),
        (SWITCH, {"type": "adaptive"}, None, {}),
        (SWITCH, {"type": "adaptive", "display": "summarized"}, "high", {"reasoning_effort": "high"}),
        (
            SWITCH,
            {"type": "enabled", "budget_tokens": 2000},
            None,
            {"thinking_budget": 2000, "chat_template_kwargs": {"enable_thinking": True}},
        ),
        (
            SWITCH,
            {"type": "enabled", "budget_tokens": 2000},
            "low",
            {"thinking_budget": 2000, "reasoning_effort": "low"},
        ),
        (SWITCH, {"type": "disabled"}, None, {"reasoning_effort": "none"}),
        (SWITCH, {"type": "disabled"}, "max", {"reasoning_effort": "none"}),
        (ALWAYS, {"type": "enabled", "budget_tokens": 5}, None, {"thinking_budget": 5}),
        (ALWAYS, {"type": "disabled"}, None, {"thinking_budget": 0}),
        (ALWAYS, None, "high", {}),
        (PLAIN, {"type": "enabled", "budget_tokens": 5}, "high", {"thinking_budget": 5}),
        (PLAIN, {"type": "disabled"}, None, {"reasoning_effort": "none"}),
    ],
)
def test_thinking(
    controls: Controls, thinking: dict[str, Any] | None, effort: str | None, expected: dict[str, Any]
) -> None:
    body = translated(controls, thinking=thinking, output_config=None if effort is None else {"effort": effort})
    keys = ("thinking_budget", "reasoning_effort", "chat_template_kwargs")
    assert {key: body[key] for key in keys if key in body} == expected


def test_a_requests_own_template_kwargs_stay() -> None:
    own = JsonObject(enable_thinking=False)
    body = translated(SWITCH, thinking={"type": "enabled", "budget_tokens": 5}, chat_template_kwargs=own)
    assert body["chat_template_kwargs"] is own


def test_other_fields() -> None:
    schema = {"type": "object"}
    body = translated(
        output_config={"format": {"type": "json_schema", "schema": schema}},
        metadata={"user_id": "me"},
        stop_sequences=["a"],
        top_k=5,
        top_p=0.5,
        service_tier="auto",
        cache_control={"type": "ephemeral"},
        context_management={"edits": []},
    )
    assert body["response_format"]["json_schema"] == {"name": "answer", "schema": schema, "strict": True}
    assert (body["user"], body["stop"], body["top_k"], body["top_p"]) == ("me", ["a"], 5, 0.5)
    assert not {"service_tier", "cache_control", "metadata"} & set(body)


def block(value: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": [value]}]}


IMAGE = {"type": "image", "source": {"type": "url", "url": "http://169.254.169.254/"}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [1]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        (block({"type": "text", "text": 1}), "messages[0].content[0].text"),
        (block(IMAGE), "messages[0].content[0].type"),
        ({**block(IMAGE), "system": "s"}, "messages[0].content[0].type"),
        (block(USE), "messages[0].content[0].type"),
        (block(result(), "assistant"), "messages[0].content[0].type"),
        (block({"type": "server_tool_use"}, "assistant"), "messages[0].content[0].type"),
        (block({"type": "thinking", "thinking": 1}, "assistant"), "messages[0].content[0].thinking"),
        (block({**USE, "name": 1}, "assistant"), "messages[0].content[0].name"),
        (block({**USE, "input": "{}"}, "assistant"), "messages[0].content[0].input"),
        (block({**USE, "id": None}, "assistant"), "messages[0].content[0].id"),
        (block({**result(), "tool_use_id": None}), "messages[0].content[0].tool_use_id"),
        (block(result(is_error="yes")), "messages[0].content[0].is_error"),
        (block(result(3)), "messages[0].content[0].content"),
        (block(result([IMAGE], is_error=True)), "messages[0].content[0].content[0].type"),
        (block(result([text("a"), {"type": "odd"}])), "messages[0].content[0].content[1].type"),
        (
            block({"type": "document", "source": {"type": "url", "url": "http://x/"}}),
            "messages[0].content[0].source.type",
        ),
        (
            block({"type": "document", "source": {"type": "base64", "data": "?"}}),
            "messages[0].content[0].source.data",
        ),
        (
            block({"type": "document", "source": {"type": "content", "content": [result()]}}),
            "messages[0].content[0].source.content[0].type",
        ),
        ({"system": 1}, "system"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"messages": user("refuse")}, "messages"),
        ({"temperature": 3}, "temperature"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"metadata": "x"}, "metadata"),
        ({"metadata": {"user_id": 1}}, "metadata.user_id"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "all"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}, "tool_choice.disable_parallel_tool_use"),
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "adaptive", "display": "all"}}, "thinking.display"),
        ({"thinking": "on"}, "thinking"),
        ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "text"}}}, "output_config.format.type"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
    ],
)
def test_errors_name_what_was_sent(bench: Callable[..., Bench], fields: dict[str, Any], param: str) -> None:
    reply = bench().client.post(PATH, json=asked(**fields))
    body = reply.get_json()
    assert (reply.status_code, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")
    assert param in body["error"]["message"]


def test_errors_of_every_kind(bench: Callable[..., Bench]) -> None:
    made = bench(api_key="k")
    right = {"x-api-key": "k"}

    def failure(
        path: str = PATH, method: str = "POST", headers: dict[str, str] = right, **fields: Any
    ) -> tuple[int, str]:
        reply = made.client.open(path, method=method, headers=headers, json=asked(**fields))
        assert reply.get_json()["type"] == "error"
        return reply.status_code, reply.get_json()["error"]["type"]

    assert failure(headers={"x-api-key": "wrong"}) == (401, "authentication_error")
    assert failure(model="gpt") == (404, "not_found_error")
    assert failure(f"{PATH}/nothing") == (404, "not_found_error")
    assert failure(method="PUT") == (405, "invalid_request_error")
    made.engine.fail("x")
    assert failure() == (503, "api_error")
    assert made.client.post(PATH, headers=right, data=b"{").get_json()["error"]["type"] == "invalid_request_error"


def test_overload_and_length(bench: Callable[..., Bench]) -> None:
    made = bench(info=Bench.info(queue_limit=1), hold=("queue",))
    assert made.client.post(PATH, json=asked(stream=True), buffered=False).status_code == 200
    full = made.client.post(PATH, json=asked())
    assert (full.status_code, full.get_json()["error"]["type"]) == (503, "overloaded_error")
    long = made.client.post(PATH, json=asked(max_tokens=1000)).get_json()["error"]["message"]
    assert long.startswith("prompt is too long: ")


def test_count_tokens(bench: Callable[..., Bench]) -> None:
    made = bench()
    sent = {"model": NAME, "messages": user(), "system": "Be brief."}
    counted = made.client.post(f"{PATH}/count_tokens", json=sent).get_json()
    assert counted == {"input_tokens": 40}
    assert made.engine.requests == []
    used = made.client.post(PATH, json={**sent, "max_tokens": 5}).get_json()["usage"]["input_tokens"]
    assert used == counted["input_tokens"]
    wrong = made.client.post(f"{PATH}/count_tokens", json={"model": NAME, "messages": []})
    assert (wrong.status_code, wrong.get_json()["error"]["type"]) == (400, "invalid_request_error")
