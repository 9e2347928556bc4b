"""The official client's Responses calls against a real server."""

from __future__ import annotations

from collections.abc import Callable

import openai
import pydantic
import pytest
from openai.types.responses import Response, ResponseFunctionToolCall

from dgpp.serve.server import HttpServer
from tests.serve.responses.support import TERMINAL, speaking
from tests.serve.support import NAME, Bench
from tests.serve.turns import SpokenTurn, called, finished, said, steps, thought

TEXT = "Grüße, 世界 😀! And so on."


class Weather(pydantic.BaseModel):
    """Asks for the weather."""

    place: str


def client_of(server: HttpServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=10)


def test_created_and_streamed_agree(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    _, server = serving(TEXT)
    client = client_of(server)
    whole = client.responses.create(model=NAME, input="hi", temperature=0)
    assert whole.output_text == TEXT
    Response.model_validate(whole.to_dict())  # the client's own type, which create() does not enforce
    deltas, final = [], None
    for event in client.responses.create(model=NAME, input="hi", temperature=0, stream=True):
        if event.type == "response.output_text.delta":
            deltas.append(event.delta)
        elif event.type == "response.completed":
            final = event.response
    assert "".join(deltas) == TEXT
    assert final is not None
    assert final.output_text == TEXT
    assert final.usage == whole.usage


def test_the_stream_helper_and_calls(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    made, server = serving()
    script = steps(*thought("Hm."), *said(TEXT), *called(0, "Weather", '{"place": "Köln"}'), finished("tool_calls"))
    made.service.chat = lambda chat: SpokenTurn(script, chat.model)  # type: ignore[assignment,method-assign]
    with client_of(server).responses.stream(model=NAME, input="hi") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert final.output_text == TEXT
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    call = final.output[2]
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, call.arguments) == ("Weather", '{"place": "Köln"}')


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_every_event_is_of_the_clients_types(serving: Callable[..., tuple[Bench, HttpServer]], reason: str) -> None:
    made, server = serving()
    events = [*thought("a"), *said("b"), *called(0, "f", "{}"), *called(1, "g", "x", "custom"), finished(reason)]
    made.service.chat = lambda chat: SpokenTurn(steps(*events), chat.model)  # type: ignore[assignment,method-assign]
    seen = 0
    for event in client_of(server).responses.create(model=NAME, input="hi", stream=True):
        seen += 1
        type(event).model_validate(event.to_dict())
        assert type(event).model_fields["type"].annotation.__args__ == (event.type,)
    assert event.type in TERMINAL
    assert seen == 24


def test_parse(serving: Callable[..., tuple[Bench, HttpServer]], bench: Callable[..., Bench]) -> None:
    made, server = serving()
    seen = []
    spoken = speaking(bench, steps(*said('{"place": "Köln"}'), finished()))
    made.service.chat = lambda chat: seen.append(chat) or spoken.service.chat(chat)  # type: ignore[assignment,method-assign,func-returns-value]
    parsed = client_of(server).responses.parse(model=NAME, input="hi", text_format=Weather)
    assert parsed.output_parsed == Weather(place="Köln")
    assert len(seen) == 1


def test_errors_arrive_as_the_client_types_them(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    made, server = serving(TEXT, hold=("decode",))
    client = client_of(server)
    with pytest.raises(openai.BadRequestError) as wrong:
        client.responses.create(model=NAME, input="hi", previous_response_id="resp_1")
    assert (wrong.value.code, wrong.value.param) == ("unsupported_parameter", "previous_response_id")
    stream = client.responses.create(model=NAME, input="hi", stream=True)
    made.engine.fail("secret detail")
    last = list(stream)[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert "secret" not in last.response.error.message
