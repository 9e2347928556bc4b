"""The official Anthropic client against the Messages API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.conftest import SMOLLM2
from tests.clients.scripted_server import NAME

pytestmark = pytest.mark.clients

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
TOOL = {
    "name": "get_weather",
    "description": "Says what the weather is like in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def client(url: str) -> Any:
    return pytest.importorskip("anthropic").Anthropic(base_url=url, api_key="none", max_retries=0, timeout=300)


def test_messages_of_smollm2(smollm2: str) -> None:
    asked: dict[str, Any] = {"model": SMOLLM2, "messages": QUESTION, "max_tokens": 24, "extra_body": {"temperature": 0}}
    whole = client(smollm2).messages.create(**asked)
    assert "Paris" in whole.content[0].text
    with client(smollm2).messages.stream(**asked) as stream:
        assert stream.get_final_message().content[0].text == whole.content[0].text
    counted = client(smollm2).messages.count_tokens(model=SMOLLM2, messages=QUESTION)
    assert counted.input_tokens == whole.usage.input_tokens


def test_a_tool_loop_with_thinking(scripted: str) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather like?"}]
    asked: dict[str, Any] = {"model": NAME, "max_tokens": 2000, "tools": [TOOL]}
    with client(scripted).messages.stream(messages=messages, **asked) as stream:
        first = stream.get_final_message()
    assert (first.stop_reason, [block.type for block in first.content]) == ("tool_use", ["thinking", "tool_use"])
    assert first.content[1].input == {"city": "Paris"}
    result = {"type": "tool_result", "tool_use_id": first.content[1].id, "content": "Rain."}
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    last = client(scripted).messages.create(messages=messages, **asked)
    assert last.stop_reason == "end_turn"
    assert last.content[-1].text == "The tool said what it had to say."
