"""Thinking, tools and structured output of the Responses API with a model that has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.serve.responses.support import PATH, asked, both_ways
from tests.serve.support import MARKERS, Bench, ids
from tests.text.templates import QWEN38

CALL = "<tool_call>\n<function=look>\n<parameter=place>\nKöln\n</parameter>\n</function>\n</tool_call>"
NOTED = "<tool_call>\n<function=note>\n<parameter=input>\nline\n</parameter>\n</function>\n</tool_call>"
LOOK = {
    "type": "function",
    "name": "look",
    "description": "Looks at a place.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}
NOTE = {"type": "custom", "name": "note", "description": "Writes something down."}


def model(bench: Callable[..., Bench], script: Any) -> Bench:
    return bench(script, template=QWEN38, markers=MARKERS, info=Bench.info(position_ceiling=4096))


def test_thinking_text_and_calls(bench: Callable[..., Bench]) -> None:
    made = model(bench, f"I look.\n</think>\n\nOne moment.\n\n{CALL}\n{NOTED}")
    body, _ = both_ways(made, tools=[LOOK, NOTE])
    assert [item["type"] for item in body["output"]] == ["reasoning", "message", "function_call", "custom_tool_call"]
    thinking, said, call, note = body["output"]
    assert thinking["content"][0]["text"].strip() == "I look."
    assert said["content"][0]["text"].strip() == "One moment."
    assert call["arguments"] == '{"place": "Köln"}'
    assert note["input"] == "line"
    assert body["usage"]["output_tokens_details"]["reasoning_tokens"] == len("I look.\n") + 1
    assert body["tools"] == [{**LOOK, "strict": False}, {**NOTE, "format": {"type": "text"}}]
    assert "Looks at a place." in made.prompts()[0]


@pytest.mark.parametrize("kept", range(1, 74, 3))
def test_cut_anywhere(bench: Callable[..., Bench], kept: int) -> None:
    body, _ = both_ways(model(bench, f"Hm.\n</think>\n\n{CALL}"), tools=[LOOK], max_output_tokens=kept)
    assert body["status"] == "incomplete"
    assert body["usage"]["output_tokens"] == kept


def test_a_conversation_with_a_result(bench: Callable[..., Bench]) -> None:
    scripts = iter([f"I look.\n</think>\n\n{CALL}", "Good.\n</think>\n\nIt rains."])
    made = model(bench, lambda request, index: ids(next(scripts)))
    history: list[Any] = [{"role": "user", "content": "Weather?"}]
    first = made.client.post(PATH, json=asked(input=history, tools=[LOOK])).get_json()
    history += first["output"]
    history.append({"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "rain"})
    second = made.client.post(PATH, json=asked(input=history, tools=[LOOK])).get_json()
    assert [item["type"] for item in second["output"]] == ["reasoning", "message"]
    assert second["output"][1]["content"][0]["text"].strip() == "It rains."
    prompt = made.prompts()[1]
    for kept in ("I look.", "<parameter=place>\nKöln\n</parameter>", "<tool_response>\nrain\n</tool_response>"):
        assert kept in prompt


SPACE = {"type": "namespace", "name": "maps", "description": "About places.", "tools": [LOOK, NOTE]}


def test_tools_of_a_namespace(bench: Callable[..., Bench]) -> None:
    calls = f"{CALL}\n{NOTED}".replace("=look>", "=maps__look>").replace("=note>", "=maps__note>")
    scripts = [f"I look.\n</think>\n\n{calls}", f"I look.\n</think>\n\n{calls}", "Good.\n</think>\n\nIt rains."]
    queue = iter(scripts)
    made = model(bench, lambda request, index: ids(next(queue)))
    body, events = both_ways(made, tools=[SPACE])
    found = [(item["type"], item["namespace"], item["name"]) for item in body["output"][1:]]
    assert found == [("function_call", "maps", "look"), ("custom_tool_call", "maps", "note")]
    done = next(event for event in events if event["type"] == "response.function_call_arguments.done")
    assert (done["namespace"], done["name"]) == ("maps", "look")
    assert body["tools"] == [SPACE]
    assert "About places.\\nLooks at a place." in made.prompts()[0]
    history: list[Any] = [{"role": "user", "content": "Weather?"}, *body["output"]]
    for kind, item in zip(("function_call", "custom_tool_call"), body["output"][1:], strict=True):
        history.append({"type": f"{kind}_output", "call_id": item["call_id"], "output": "rain"})
    assert made.client.post(PATH, json=asked(input=history, tools=[SPACE])).status_code == 200
    assert "<function=maps__look>" in made.prompts()[2]


def test_a_request_as_a_coding_agent_sends_it(bench: Callable[..., Bench]) -> None:
    made = model(bench, f"I look.\n</think>\n\n{CALL}")
    request = {
        "input": [
            {
                "type": "message",
                "id": "m1",
                "role": "developer",
                "content": [{"type": "input_text", "text": "You are an agent."}],
            },
            {"type": "message", "id": "m2", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
            {"type": "message", "id": "m3", "role": "user", "content": [{"type": "input_text", "text": "<context>"}]},
            {"type": "message", "id": "m4", "role": "user", "content": [{"type": "input_text", "text": "Go."}]},
        ],
        "tools": [{**LOOK, "strict": False}, SPACE],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "client_metadata": {"session": "s"},
    }
    body, _ = both_ways(made, **request)
    assert [item["type"] for item in body["output"]] == ["reasoning", "function_call"]
    for text in ("You are an agent.\n\nRules.", "user\n<context>", "user\nGo."):
        assert text in made.prompts()[0]


def test_no_thinking(bench: Callable[..., Bench]) -> None:
    body, _ = both_ways(model(bench, "Yes."), reasoning={"effort": "none"})
    assert [item["type"] for item in body["output"]] == ["message"]
    assert body["reasoning"] == {"effort": "none", "summary": None}


def test_a_schema_is_enforced(bench: Callable[..., Bench]) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["yes"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    body, _ = both_ways(model(bench, 'Hm.\n</think>\n\n{"a": "yes"}'), text={"format": form})
    assert body["output"][-1]["content"][0]["text"].strip() == '{"a": "yes"}'
    assert body["text"]["format"] == form


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"tools": [{**LOOK, "name": "a b"}]}, None, "tools[0].name"),
        ({"tools": [LOOK, LOOK]}, None, "tools[1].name"),
        ({"tools": [{**LOOK, "parameters": 1}]}, None, "tools[0].parameters"),
        ({"tools": [NOTE, {**NOTE, "name": "n", "format": {"type": "x"}}]}, None, "tools[1].format.type"),
        (
            {"tools": [{**NOTE, "format": {"type": "grammar", "syntax": "lark", "definition": "start: ("}}]},
            "invalid_grammar",
            "tools[0].format",
        ),
        (
            {"tools": [{**LOOK, "strict": True, "parameters": {"type": "object", "if": {}}}]},
            "unsupported_schema",
            "tools[0].parameters.if",
        ),
        ({"tools": [LOOK], "tool_choice": {"type": "function", "name": "other"}}, None, "tool_choice.name"),
        ({"tool_choice": "required"}, None, "tool_choice"),
        ({"tools": [{**SPACE, "name": 1}]}, None, "tools[0].name"),
        ({"tools": [{**SPACE, "tools": 1}]}, None, "tools[0].tools"),
        ({"tools": [{**SPACE, "tools": [1]}]}, None, "tools[0].tools[0]"),
        ({"tools": [{**SPACE, "description": 1}]}, None, "tools[0].description"),
        ({"tools": [NOTE, {**SPACE, "tools": [LOOK, {**LOOK, "name": "a b"}]}]}, None, "tools[1].tools[1].name"),
        ({"tools": [{**SPACE, "tools": [SPACE]}]}, "unsupported_parameter", "tools[0].tools[0].type"),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "", "namespace": 1}]},
            None,
            "input[0].namespace",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": {"if": {}}}}},
            "unsupported_schema",
            "text.format.schema.if",
        ),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, None, "text.format.name"),
        ({"reasoning": {"effort": "huge"}}, None, "reasoning.effort"),
    ],
)
def test_errors_name_what_was_sent(
    bench: Callable[..., Bench], fields: dict[str, Any], code: str | None, param: str
) -> None:
    reply = model(bench, "x").client.post(PATH, json=asked(**fields))
    error = reply.get_json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, code, param)


def test_a_web_search_that_agents_declare_to_every_server_is_left_out(bench: Callable[..., Bench]) -> None:
    made = bench("ok")
    search = {"type": "web_search", "external_web_access": False}
    reply = made.client.post(PATH, json=asked(tools=[search]))
    assert reply.status_code == 200
    assert reply.get_json()["tools"] == []
    refused = made.client.post(PATH, json=asked(tools=[search], tool_choice={"type": "web_search"}))
    assert (refused.status_code, refused.get_json()["error"]["param"]) == (400, "tool_choice.type")
