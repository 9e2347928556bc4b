"""Thinking and tool use of the Messages API with a model that has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.serve.anthropic.support import PATH, asked, assembled, both_ways
from tests.serve.responses.support import read_named
from tests.serve.support import MARKERS, NAME, Bench, ids, user
from tests.text.templates import QWEN38

CALL = "<tool_call>\n<function=look>\n<parameter=place>\nKöln\n</parameter>\n</function>\n</tool_call>"
LOOK = {
    "name": "look",
    "description": "Looks at a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


def model(bench: Callable[..., Bench], script: Any) -> Bench:
    return bench(script, template=QWEN38, markers=MARKERS, info=Bench.info(position_ceiling=4096))


def test_thinking_text_and_calls(bench: Callable[..., Bench]) -> None:
    made = model(bench, f"I look.\n</think>\n\nOne moment.\n\n{CALL}\n{CALL}")
    body, _ = both_ways(made, tools=[LOOK], max_tokens=300)
    thinking, said, *calls = body["content"]
    assert (thinking["type"], thinking["thinking"].strip()) == ("thinking", "I look.")
    assert said["text"].strip() == "One moment."
    assert [call["input"] for call in calls] == [{"place": "Köln"}] * 2
    assert len({call["id"] for call in calls}) == 2
    assert body["stop_reason"] == "tool_use"
    assert body["usage"]["output_tokens_details"]["thinking_tokens"] == len("I look.\n") + 1
    assert "Looks at a place." in made.prompts()[0]


@pytest.mark.parametrize("kept", range(1, 74, 3))
def test_cut_anywhere(bench: Callable[..., Bench], kept: int) -> None:
    body, _ = both_ways(model(bench, f"Hm.\n</think>\n\n{CALL}"), tools=[LOOK], max_tokens=kept)
    assert body["stop_reason"] == "max_tokens"
    assert body["usage"]["output_tokens"] == kept


def test_one_call_where_only_one_is_wanted(bench: Callable[..., Bench]) -> None:
    made = model(bench, f"</think>\n\n{CALL}\n{CALL}")
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    body, _ = both_ways(made, tools=[LOOK], tool_choice=choice, max_tokens=300)
    assert [block["type"] for block in body["content"]] == ["tool_use"]


def test_a_choice_of_auto_needs_no_tools(bench: Callable[..., Bench]) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    body, _ = both_ways(bench("Hello."), tool_choice=choice, tools=[])
    assert body["stop_reason"] == "end_turn"


def test_no_thinking(bench: Callable[..., Bench]) -> None:
    made = model(bench, "Yes.")
    body, _ = both_ways(made, thinking={"type": "disabled"})
    assert [block["type"] for block in body["content"]] == ["text"]
    # The template opens and closes the thinking itself.
    markers = [id for id in made.engine.requests[0].prompt if id >= 300]
    assert markers[-2:] == ids("<think></think>")


def test_a_budget_ends_the_thinking(bench: Callable[..., Bench]) -> None:
    made = model(bench, "a" * 30)
    body, _ = both_ways(made, thinking={"type": "enabled", "budget_tokens": 8})
    assert body["content"][0]["type"] == "thinking"
    assert body["content"][0]["thinking"].count("a") <= 8
    assert body["content"][1]["type"] == "text"


def test_an_answer_goes_on(bench: Callable[..., Bench]) -> None:
    made = bench(" Bonn.")
    begun = [*user("Capital?"), {"role": "assistant", "content": "It was"}]
    body, _ = both_ways(made, messages=begun)
    assert body["content"][0]["text"] == " Bonn."
    assert made.prompts()[0].endswith("assistant\nIt was")


def test_a_request_as_a_coding_agent_sends_it(bench: Callable[..., Bench]) -> None:
    made = model(bench, f"I look.\n</think>\n\n{CALL}")
    cached = {"cache_control": {"type": "ephemeral"}}
    request = {
        "model": NAME,
        "max_tokens": 300,
        "system": [{"type": "text", "text": "You are an agent."}, {"type": "text", "text": "Rules.", **cached}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "<reminder>"}, {"type": "text", "text": "Go.", **cached}],
            },
            {"role": "system", "content": "Late instruction."},
        ],
        "tools": [LOOK],
        "metadata": {"user_id": '{"device_id": "x"}'},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "stream": True,
    }
    reply = made.client.post(f"{PATH}?beta=true", json=request, headers={"anthropic-beta": "a,b"})
    assert reply.status_code == 200
    assert [block["type"] for block in assembled(read_named(reply.data))["content"]] == ["thinking", "tool_use"]
    for text in ("You are an agent.\n\nRules.", "<reminder>\n\nGo.", "Late instruction."):
        assert text in made.prompts()[0]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{**LOOK, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [LOOK, LOOK]}, "tools[1].name"),
        ({"tools": [{**LOOK, "description": 1}]}, "tools[0].description"),
        ({"tools": [LOOK], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        (
            {"tools": [{**LOOK, "strict": True, "input_schema": {"type": "object", "if": {}}}]},
            "tools[0].input_schema",
        ),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"if": {}}}}}, "output_config.format.schema"),
    ],
)
def test_errors_name_what_was_sent(bench: Callable[..., Bench], fields: dict[str, Any], param: str) -> None:
    reply = model(bench, "x").client.post(PATH, json=asked(**fields))
    assert (reply.status_code, reply.get_json()["error"]["type"]) == (400, "invalid_request_error")
    assert param in reply.get_json()["error"]["message"]
    assert "function" not in reply.get_json()["error"]["message"].split(":")[0]
