"""Structured output over HTTP: enforced together with everything else a request can ask for (spec/api.md §8)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from tests.serve.support import MARKERS, NAME, Bench, both_ways, chat
from tests.serve.test_tools import CALL, WEATHER
from tests.text.templates import QWEN38

Make = Callable[..., Bench]

ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}, "why": {"type": "integer"}},
    "required": ["answer", "why"],
    "additionalProperties": False,
}


def form(schema: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **fields}}


def thinker(bench: Make, script: Any, **options: Any) -> Bench:
    return bench(script, template=QWEN38, markers=MARKERS, info=Bench.info(position_ceiling=4096), **options)


def content(body: dict[str, Any], choice: int = 0) -> str:
    text: str = body["choices"][choice]["message"]["content"]
    return text


def test_J1_the_constraint_is_armed_after_the_reasoning(bench: Make) -> None:
    made = thinker(bench, 'Let me see { "what" }: yes.\n</think>\n\n{"answer": "yes", "why": 42}')
    body, _ = both_ways(made, response_format=form(ANSWER))
    assert json.loads(content(body)) == {"answer": "yes", "why": 42}
    assert body["choices"][0]["message"]["reasoning_content"] == 'Let me see { "what" }: yes.'
    assert body["choices"][0]["finish_reason"] == "stop"


def test_J2_a_spent_budget_of_thinking_hands_over_to_the_grammar(bench: Make) -> None:
    made = thinker(bench, "I could think about this for ever and ever and ever and ever." * 4)
    body, _ = both_ways(made, response_format=form(ANSWER), thinking_budget=10, max_tokens=200)
    assert body["choices"][0]["message"]["reasoning_content"].startswith("I could th")
    jsonschema.validate(json.loads(content(body)), ANSWER)
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 10 + len("\n") + 1


def test_a_budget_of_thinking_alone_leaves_the_answer_free(bench: Make) -> None:
    made = thinker(bench, "abcdefghijklmnopqrstuvwxyz")
    body, _ = both_ways(made, thinking_budget=4)
    assert body["choices"][0]["message"]["reasoning_content"] == "abcd"
    assert content(body)
    assert set(content(body)) <= set("abcdefghijklmnopqrstuvwxyz")
    none, _ = both_ways(made, thinking_budget=0)
    assert "reasoning_content" not in none["choices"][0]["message"]


def test_J8_a_model_that_would_rather_talk_writes_json(bench: Make) -> None:
    made = bench("Sure! Here is some JSON for you, as you asked, and a poem.", info=Bench.info(position_ceiling=4096))
    for wanted in (form(ANSWER), form(ANSWER, strict=True)):
        body, _ = both_ways(made, response_format=wanted)
        jsonschema.validate(json.loads(content(body)), ANSWER)
    for wanted, whole in (
        ({"type": "regex", "pattern": "[a-c]{3}-[0-9]{2}"}, r"[a-c]{3}-[0-9]{2}"),
        ({"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "x" ("yz")? "!"'}}, r"x(yz)?!"),
        ({"type": "grammar", "grammar": {"syntax": "regex", "definition": "(ab){1,3}c"}}, r"(ab){1,3}c"),
    ):
        body, _ = both_ways(made, response_format=wanted)
        assert re.fullmatch(whole, content(body))


def test_a_form_for_a_raw_completion(bench: Make) -> None:
    made = bench("No, thanks.")
    asked = {"model": NAME, "prompt": "Colour:", "response_format": {"type": "regex", "pattern": "red|green"}}
    reply = made.client.post("/v1/completions", json=asked)
    assert reply.get_json()["choices"][0]["text"] in ("red", "green")


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 3},
        {"logprobs": True, "top_logprobs": 2},
        {"stop": ["why"]},
        {"frequency_penalty": 1.5, "presence_penalty": 1, "repetition_penalty": 1.3},
        {"logit_bias": {"123": -100}, "seed": 3},
        {"min_tokens": 5},
    ],
    ids=lambda fields: "+".join(fields),
)
def test_api_8_with_everything_else_that_a_request_can_ask_for(bench: Make, fields: dict[str, Any]) -> None:
    made = bench('{"answer": "no", "why": 7}', info=Bench.info(position_ceiling=4096))
    body, _ = both_ways(made, response_format=form(ANSWER), **fields)
    for choice in body["choices"]:
        text = choice["message"]["content"]
        if "stop" in fields:
            assert text == '{"answer": "no", "'
            continue
        assert json.loads(text) == {"answer": "no", "why": 7}
        if "logprobs" in fields:
            assert "".join(entry["token"] for entry in choice["logprobs"]["content"]) == text


def test_api_7_2_json_or_a_call_whichever_comes_first(bench: Make) -> None:
    for script in (f"</think>\n\n{CALL}", '</think>\n\n{"answer": "no", "why": 7}'):
        body, _ = both_ways(thinker(bench, script), tools=[WEATHER], response_format=form(ANSWER))
        said = body["choices"][0]["message"]
        if "tool_call" in script:
            assert said["tool_calls"][0]["function"]["name"] == "get_weather"
        else:
            assert json.loads(said["content"])["why"] == 7
            assert "tool_calls" not in said


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "object", "properties": {"a": {"if": {}}}}, "properties.a.if"),
        ({"$ref": "https://example.com/schema.json"}, "$ref"),
        ({"type": "object", "unheardOf": 1, "properties": {"a": {"not": {"type": "null"}}}}, "properties.a.not"),
    ],
    ids=json.dumps,
)
def test_J8_what_cannot_be_enforced_is_refused_by_name(bench: Make, schema: dict[str, Any], keyword: str) -> None:
    reply = bench().client.post("/v1/chat/completions", json=chat(response_format=form(schema, strict=True)))
    error = reply.get_json()["error"]
    assert (reply.status_code, error["code"]) == (400, "unsupported_schema")
    assert error["param"].startswith("response_format.json_schema.schema")
    assert error["param"].split(".")[-1] == keyword.split(".")[-1] or "unheardOf" in error["param"]


def test_A5_a_surrogate_in_a_schema_names_its_place(bench: Make) -> None:
    raw = json.dumps(chat(response_format=form({"type": "object", "properties": {"a\ud83d": {}}})))
    reply = bench().client.post("/v1/chat/completions", data=raw)
    error = reply.get_json()["error"]
    assert (reply.status_code, error["type"]) == (400, "invalid_request_error")
    assert "response_format" in error["param"]
