"""The official client's calls against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from dgpp.serve.server import HttpServer
from tests.serve.support import MARKERS, NAME, Bench, ids, user
from tests.serve.turns import SpokenTurn, called, finished, said, steps, thought
from tests.text.templates import QWEN38

CALL = "<tool_call>\n<function=weather>\n<parameter=place>\nKöln\n</parameter>\n</function>\n</tool_call>"
TEXT = "Grüße, 世界 😀! And so on."
WEATHER = {
    "name": "weather",
    "description": "The weather of a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


def client_of(server: HttpServer, key: str = "any") -> Any:
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0, timeout=10)


def test_created_and_streamed_agree(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    _, server = serving(TEXT)
    client = client_of(server)
    whole = client.messages.create(model=NAME, max_tokens=60, messages=user())
    assert whole.content[0].text == TEXT
    anthropic.types.Message.model_validate(whole.to_dict())
    with client.messages.stream(model=NAME, max_tokens=60, messages=user()) as stream:
        assert "".join(stream.text_stream) == TEXT
        final = stream.get_final_message()
    assert final.usage == whole.usage
    assert final.stop_reason == whole.stop_reason == "end_turn"


def test_every_event_is_of_the_clients_types(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    made, server = serving()
    script = steps(*thought("a"), *said("b"), *called(0, "f", '{"a": 1}'), finished("tool_calls"))
    made.service.chat = lambda chat: SpokenTurn(script, chat.model)  # type: ignore[assignment,method-assign]
    seen = 0
    for event in client_of(server).messages.create(model=NAME, max_tokens=9, messages=user(), stream=True):
        type(event).model_validate(event.to_dict())
        assert type(event).model_fields["type"].annotation.__args__ == (event.type,)
        seen += 1
    assert seen == 20


def test_a_loop_with_a_tool(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    scripts = iter([f"I must look.\n</think>\n\n{CALL}", "Good.\n</think>\n\nIt rains in Köln."])
    made, server = serving(
        lambda request, index: ids(next(scripts)),
        template=QWEN38,
        markers=MARKERS,
        info=Bench.info(position_ceiling=4096),
    )
    client = client_of(server)
    messages: list[Any] = [{"role": "user", "content": "Weather in Köln?"}]
    for _ in range(2):
        with client.messages.stream(model=NAME, max_tokens=300, messages=messages, tools=[WEATHER]) as stream:
            answer = stream.get_final_message()
        messages.append({"role": "assistant", "content": answer.content})
        if answer.stop_reason != "tool_use":
            break
        use = next(block for block in answer.content if block.type == "tool_use")
        assert use.input == {"place": "Köln"}
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "rain"}]}
        )
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert answer.content[1].text.strip() == "It rains in Köln."
    assert answer.stop_reason == "end_turn"
    prompt = made.prompts()[1]
    assert "I must look." in prompt
    assert "<parameter=place>\nKöln\n</parameter>" in prompt
    assert "<tool_response>\nrain\n</tool_response>" in prompt


def test_tokens_are_counted(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    _, server = serving()
    counted = client_of(server).messages.count_tokens(model=NAME, messages=user(), system="Be brief.")
    assert counted.input_tokens == 40


def test_errors_arrive_as_the_client_types_them(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    made, server = serving(TEXT, api_key="secret", hold=("decode",))
    with pytest.raises(anthropic.AuthenticationError):
        client_of(server, "wrong").messages.create(model=NAME, max_tokens=9, messages=user())
    client = client_of(server, "secret")
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="claude", max_tokens=9, messages=user())
    with pytest.raises(anthropic.BadRequestError) as wrong:
        client.messages.create(model=NAME, max_tokens=0, messages=user())
    assert "max_tokens" in json.dumps(wrong.value.body)
    stream = client.messages.create(model=NAME, max_tokens=9, messages=user(), stream=True)
    made.engine.fail("secret detail")
    with pytest.raises(anthropic.APIStatusError) as failed:
        list(stream)
    assert "api_error" in str(failed.value)
    assert "detail" not in str(failed.value)
