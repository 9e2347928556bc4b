"""The route of the Responses API."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request

from dgpp.serve.replies import event_stream, json_reply, start
from dgpp.serve.requests.body import parse_body
from dgpp.serve.requests.chat import parse_chat
from dgpp.serve.responses.events import TERMINAL, ResponseEvents
from dgpp.serve.responses.objects import Frame
from dgpp.serve.responses.request import translate
from dgpp.serve.service import Service
from dgpp.serve.sse import encode_named_event, obfuscated


def blueprint(service: Service) -> Blueprint:
    """The route. Answers are not kept, so there is nothing to get later."""
    routes = Blueprint("responses", __name__)

    @routes.post("/v1/responses")
    def create() -> Response:
        asked = translate(parse_body(request.get_data()))
        with asked.paths.errors():
            chat = parse_chat(asked.chat, service.served)
            turn = start(service.chat, chat)
        made = ResponseEvents(turn, Frame(turn, chat, asked.sent, service.sampling_defaults))
        if chat.stream is None:
            return json_reply(whole(made))
        encode = _encode_obfuscated if chat.stream.include_obfuscation else encode_named_event
        interval = service.ping_interval(chat.stream)
        return event_stream(turn, made.events(), interval, encode, failed=made.failure, done=b"")

    return routes


def whole(made: ResponseEvents) -> dict[str, Any]:
    """The response object, once everything is generated. Raises ApiError when the turn fails."""
    last: dict[str, Any] = {}
    for event in made.events():
        last = event or last
    if made.failed is not None:
        raise made.failed
    assert last["type"] in TERMINAL
    response: dict[str, Any] = last["response"]
    return response


def _encode_obfuscated(event: dict[str, Any]) -> bytes:
    """Deltas with random characters that hide how long they are."""
    if not event["type"].endswith(".delta"):
        return encode_named_event(event)
    return f"event: {event['type']}\n".encode() + obfuscated(event)
