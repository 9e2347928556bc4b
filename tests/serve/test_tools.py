"""Tools over HTTP: what reaches the prompt, what comes back, what the model cannot do otherwise (spec/api.md §7)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.serve.support import END, MARKERS, NAME, Bench, both_ways, chat, ids, user
from tests.text.templates import QWEN38

Make = Callable[..., Bench]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Says what the weather is like.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
NOTE = {"type": "custom", "custom": {"name": "note", "description": "Writes something down."}}
CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
LAST_NOTE = (
    '<tool_call>\n<function=note>\n<parameter=input>\nIt said "<b>hé</b>"\n</parameter>\n</function>\n</tool_call>'
)


def tool_bench(bench: Make, script: Any, **options: Any) -> Bench:
    return bench(script, template=QWEN38, markers=MARKERS, info=Bench.info(position_ceiling=4096), **options)


def message(body: dict[str, Any], choice: int = 0) -> dict[str, Any]:
    return body["choices"][choice]["message"]


def test_api_7_a_call_comes_back_in_the_clients_shape(bench: Make) -> None:
    made = tool_bench(bench, f"I look it up.\n</think>\n\nOne moment.\n\n{CALL}")
    body, _ = both_ways(made, tools=[WEATHER])
    said = message(body)
    assert (said["content"], said["reasoning_content"]) == ("One moment.", "I look it up.")
    (call,) = said["tool_calls"]
    assert list(call) == ["id", "type", "function"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Paris", "days": 3}'}
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == len("I look it up.\n") + 1
    assert made.counts()["tool_calls_out"] == 2


def test_L12_the_opening_delta_alone_has_id_type_and_name(bench: Make) -> None:
    made = tool_bench(bench, f"</think>\n\n{CALL}\n{LAST_NOTE}")
    body, chunks = both_ways(made, tools=[WEATHER, NOTE])
    parts = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", ())]
    assert [part["index"] for part in parts if "id" in part] == [0, 1]
    assert len({part["id"] for part in parts if "id" in part}) == 2
    assert [part["index"] for part in parts] == sorted(part["index"] for part in parts)
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert message(body)["content"] is None
    assert message(body)["tool_calls"][1]["custom"] == {"name": "note", "input": 'It said "<b>hé</b>"'}


def test_L12_a_call_that_is_cut_off_ends_with_length(bench: Make) -> None:
    made = tool_bench(bench, f"</think>\n\n{CALL}")
    body, _ = both_ways(made, tools=[WEATHER], max_tokens=50)
    assert body["choices"][0]["finish_reason"] == "length"
    (call,) = message(body)["tool_calls"]
    assert '{"city": "Paris", "days": 3}'.startswith(call["function"]["arguments"])


def test_L11_arguments_are_streamed_as_they_come(bench: Make) -> None:
    _, chunks = both_ways(tool_bench(bench, f"</think>\n\n{CALL}"), tools=[WEATHER])
    parts = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", ())]
    arguments = [part["function"]["arguments"] for part in parts]
    assert arguments[0] == ""
    assert len(arguments) > 5
    assert json.loads("".join(arguments)) == {"city": "Paris", "days": 3}


def test_L9_a_call_inside_unclosed_thinking_is_a_call(bench: Make) -> None:
    body, _ = both_ways(tool_bench(bench, f"I will look it up. {CALL}"), tools=[WEATHER])
    said = message(body)
    assert said["reasoning_content"].strip() == "I will look it up."
    assert said["tool_calls"][0]["function"]["name"] == "get_weather"
    assert body["choices"][0]["finish_reason"] == "tool_calls"


def test_L7_a_choice_of_none_leaves_the_tools_out_of_the_prompt(bench: Make) -> None:
    made = tool_bench(bench, f"</think>\n\n{CALL}")
    body, _ = both_ways(made, tools=[WEATHER], tool_choice="none")
    without, _ = both_ways(made)
    assert body["usage"]["prompt_tokens"] == without["usage"]["prompt_tokens"]
    assert "tool_calls" not in message(body)
    assert "<tool_call>" not in message(body)["content"]


def test_L14_no_second_call_where_only_one_is_allowed(bench: Make) -> None:
    made = tool_bench(bench, f"</think>\n\n{CALL}\n{CALL}")
    both, _ = both_ways(made, tools=[WEATHER])
    one, _ = both_ways(made, tools=[WEATHER], parallel_tool_calls=False)
    assert [len(message(body)["tool_calls"]) for body in (both, one)] == [2, 1]


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "function": {"name": "get_weather"}},
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_weather"}}]},
        },
    ],
    ids=json.dumps,
)
def test_api_7_2_a_call_that_must_come_does(bench: Make, choice: Any) -> None:
    """The model wants to chat; its tokens are masked until a call is complete."""
    made = tool_bench(bench, "</think>\n\nI would rather talk about it, at some length, if you do not mind at all.")
    body, _ = both_ways(made, tools=[WEATHER, NOTE], tool_choice=choice)
    calls = message(body)["tool_calls"]
    assert calls
    for call in calls:
        assert call["type"] == "custom" or isinstance(json.loads(call["function"]["arguments"]), dict)
    if choice != "required":
        assert [call["function"]["name"] for call in calls] == ["get_weather"]
    assert body["choices"][0]["finish_reason"] == "tool_calls"


def test_L8_a_malformed_block_is_shown_and_counted_where_nothing_masks(bench: Make) -> None:
    broken = "<tool_call>\n<function=get_weather>\n<parameter=city>Paris</tool_call> done"
    info = Bench.info(position_ceiling=4096, constrains=False)
    made = bench(f"</think>\n\nSo: {broken}", template=QWEN38, markers=MARKERS, info=info)
    body, _ = both_ways(made, tools=[WEATHER])
    assert message(body)["content"] == f"So: {broken}"
    assert "tool_calls" not in message(body)
    assert body["choices"][0]["finish_reason"] == "stop"
    assert made.counts()["tool_calls_malformed"] == 2


def test_L8_once_a_block_begins_it_cannot_be_malformed(bench: Make) -> None:
    made = tool_bench(bench, "</think>\n\nSo: <tool_call>\nwell, whatever: get_weather(Paris)")
    body, _ = both_ways(made, tools=[WEATHER], max_tokens=400)
    assert message(body)["content"] == "So: "
    (call,) = message(body)["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert set(json.loads(call["function"]["arguments"])) <= {"city", "days"}


def test_api_6_1_calls_of_two_choices_have_ids_of_their_own(bench: Make) -> None:
    body, _ = both_ways(tool_bench(bench, f"</think>\n\n{CALL}"), tools=[WEATHER], n=2)
    assert len({call["id"] for choice in body["choices"] for call in choice["message"]["tool_calls"]}) == 2


def test_api_4_1_no_logprobs_of_a_call_and_those_of_the_text_around_it(bench: Make) -> None:
    made = tool_bench(bench, f"hm</think>\n\nOne.{CALL}")
    body, _ = both_ways(made, tools=[WEATHER], logprobs=True)
    entries = body["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == "One."


def test_stop_strings_do_not_look_into_calls(bench: Make) -> None:
    body, _ = both_ways(tool_bench(bench, f"</think>\n\nGo.{CALL}"), tools=[WEATHER], stop=["Paris"])
    assert message(body)["content"] == "Go."
    assert json.loads(message(body)["tool_calls"][0]["function"]["arguments"])["city"] == "Paris"


def test_T4_a_loop_of_calls_and_results_reaches_the_template(bench: Make) -> None:
    made = tool_bench(bench, f"</think>\n\n{CALL}")
    first = made.client.post("/v1/chat/completions", json=chat(tools=[WEATHER])).get_json()
    history = [
        *user(),
        first["choices"][0]["message"],
        {
            "role": "tool",
            "tool_call_id": message(first)["tool_calls"][0]["id"],
            "content": [{"type": "text", "text": "20"}],
        },
    ]
    assert made.client.post("/v1/chat/completions", json=chat(messages=history, tools=[WEATHER])).status_code == 200
    prompt = made.prompts()[-1]
    assert "<function=get_weather>\n<parameter=city>\nParis\n</parameter>" in prompt
    assert "<tool_response>\n20\n</tool_response>" in prompt


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_T10_a_replayed_turn_is_rendered_as_it_was_generated(bench: Make, field: str) -> None:
    """The next prompt begins with the last one and its answer, id for id: what a prefix cache lives on."""
    made = tool_bench(bench, f"I look it up.\n</think>\n\nOne moment.\n\n{CALL}")
    first = made.client.post("/v1/chat/completions", json=chat(tools=[WEATHER])).get_json()
    said = message(first)
    said[field] = said.pop("reasoning_content")
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "20"}
    asked = chat(tools=[WEATHER], messages=[*user(), said, result])
    assert made.client.post("/v1/chat/completions", json=asked).status_code == 200
    before, after = made.engine.requests
    generated = [*made.engine.requests[0].prompt, *made.script, END]
    assert list(after.prompt[: len(generated)]) == generated
    assert len(before.prompt) < len(after.prompt)
    without = {key: value for key, value in said.items() if key != field}
    made.client.post("/v1/chat/completions", json={**asked, "messages": [*user(), without, result]})
    shorter = made.engine.requests[2].prompt
    assert list(shorter[: len(before.prompt)]) != list(before.prompt)  # this shape of history does not keep the prefix


def test_L13_tools_for_a_template_that_has_none_are_refused(bench: Make) -> None:
    reply = bench().client.post("/v1/chat/completions", json=chat(tools=[WEATHER]))
    error = reply.get_json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, "tools_unsupported", "tools")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}, "tool_choice"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        (
            {"tools": [{"type": "function", "function": {**WEATHER["function"], "strict": True}}]},  # type: ignore[dict-item]
            "tools[0].function.strict",
        ),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"thinking_budget": 5}, "thinking_budget"),
    ],
    ids=lambda value: json.dumps(value)[:50],
)
def test_api_7_2_without_masks_what_needs_them_is_refused(bench: Make, fields: dict[str, Any], param: str) -> None:
    made = bench(template=QWEN38, markers=MARKERS, info=Bench.info(constrains=False))
    reply = made.client.post("/v1/chat/completions", json=chat(**{"tools": [WEATHER], **fields}))
    error = reply.get_json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, "constrained_decoding_unsupported", param)
    capabilities = made.client.get(f"/v1/models/{NAME}").get_json()
    assert capabilities["tools"] == {"available": True, "constrained": False}
    assert capabilities["response_format"] == {"json_object": False, "json_schema": False}


def test_the_end_of_sequence_is_hidden_behind_a_call(bench: Make) -> None:
    made = tool_bench(bench, [*ids(f"</think>\n\n{CALL}"), END])
    body, _ = both_ways(made, tools=[WEATHER])
    assert message(body)["content"] is None
