"""The official OpenAI client: chat, Responses, streams and the helpers that parse."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pydantic
import pytest

from tests.clients.conftest import EMBEDDED, SMOLLM2
from tests.clients.scripted_server import NAME

pytestmark = pytest.mark.clients

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Says what the weather is like in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class Colour(pydantic.BaseModel):
    """What even the smallest model can end."""

    colour: Literal["red", "green"]


class City(pydantic.BaseModel):
    """What the answers are parsed into."""

    city: str
    people: int


def client(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)


def test_chat_and_stream_of_smollm2(smollm2: str) -> None:
    asked: dict[str, Any] = {"model": SMOLLM2, "messages": QUESTION, "temperature": 0, "max_tokens": 24}
    whole = client(smollm2).chat.completions.create(**asked)
    assert "Paris" in whole.choices[0].message.content
    with client(smollm2).chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_parse_on_smollm2_is_valid_by_construction(smollm2: str) -> None:
    parsed = client(smollm2).chat.completions.parse(
        model=SMOLLM2, messages=QUESTION, response_format=City, temperature=0, max_tokens=200
    )
    assert isinstance(parsed.choices[0].message.parsed, City)


def test_a_forced_call_of_smollm2_has_arguments_of_the_schema(smollm2: str) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather like in Paris?"}]
    asked: dict[str, Any] = {"model": SMOLLM2, "tools": [TOOL], "temperature": 0, "max_tokens": 200}
    reply = client(smollm2).chat.completions.create(messages=messages, tool_choice="required", **asked)
    assert reply.choices[0].finish_reason == "tool_calls"
    call = reply.choices[0].message.tool_calls[0]
    assert set(json.loads(call.function.arguments)) == {"city"}
    messages += [
        reply.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 20 degrees."},
    ]
    reply = client(smollm2).chat.completions.create(messages=messages, tool_choice="none", **asked)
    assert reply.choices[0].message.content


def test_responses_of_smollm2(smollm2: str) -> None:
    asked: dict[str, Any] = {
        "model": SMOLLM2,
        "input": QUESTION[0]["content"],
        "temperature": 0,
        "max_output_tokens": 24,
    }
    whole = client(smollm2).responses.create(**asked)
    assert "Paris" in whole.output_text
    with client(smollm2).responses.stream(**asked) as stream:
        assert stream.get_final_response().output_text == whole.output_text
    parsed = client(smollm2).responses.parse(**{**asked, "max_output_tokens": 200}, text_format=City)
    assert isinstance(parsed.output_parsed, City)


def test_the_embedded_model(embedded: str) -> None:
    asked: dict[str, Any] = {"model": EMBEDDED, "messages": QUESTION, "temperature": 0, "max_tokens": 24}
    whole = client(embedded).chat.completions.create(**asked)
    streamed = client(embedded).chat.completions.create(**asked, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices)
    assert text == whole.choices[0].message.content
    assert text
    parsed = client(embedded).chat.completions.parse(**{**asked, "max_tokens": 200}, response_format=Colour)
    assert isinstance(parsed.choices[0].message.parsed, Colour)


def test_a_tool_loop_with_thinking(scripted: str) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather like?"}]
    with client(scripted).chat.completions.stream(model=NAME, messages=messages, tools=[TOOL]) as stream:
        names = [event.name for event in stream if event.type == "tool_calls.function.arguments.done"]
        message = stream.get_final_completion().choices[0].message
    assert names == ["get_weather"]
    assert message.tool_calls[0].function.parsed_arguments == {"city": "Paris"}
    assert message.reasoning_content == "I look it up."
    messages += [
        message.model_dump(exclude_none=True, exclude={"parsed"}),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Rain."},
    ]
    reply = client(scripted).chat.completions.create(model=NAME, messages=messages, tools=[TOOL])
    assert reply.choices[0].message.content == "The tool said what it had to say."
    response = client(scripted).responses.create(
        model=NAME, input="What is the weather like?", tools=[{"type": "function", **TOOL["function"]}]
    )
    assert [item.type for item in response.output] == ["reasoning", "function_call"]
    assert json.loads(response.output[1].arguments) == {"city": "Paris"}
