"""The routes of the Messages API."""

from __future__ import annotations

from flask import Blueprint, Response, request

from dgpp.serve.anthropic.errors import ROOT
from dgpp.serve.anthropic.events import PING, MessageEvents, failure
from dgpp.serve.anthropic.request import Translated, translate
from dgpp.serve.replies import event_stream, json_reply, start
from dgpp.serve.requests.body import parse_body
from dgpp.serve.requests.chat import parse_chat
from dgpp.serve.service import Service
from dgpp.serve.sse import encode_named_event


def blueprint(service: Service) -> Blueprint:
    """The routes."""
    routes = Blueprint("anthropic", __name__)

    def read(*, counting: bool = False) -> Translated:
        return translate(parse_body(request.get_data()), service.served.controls, counting=counting)

    @routes.post(ROOT)
    def create() -> Response:
        asked = read()
        with asked.paths.errors():
            chat = parse_chat(asked.chat, service.served)
            turn = start(service.chat, chat)
        made = MessageEvents(turn, omits=asked.omits_thinking)
        if chat.stream is None:
            return json_reply(made.whole())
        interval = service.ping_interval(chat.stream)
        return event_stream(turn, made.events(), interval, encode_named_event, failed=failure, done=b"", ping=PING)

    @routes.post(f"{ROOT}/count_tokens")
    def count() -> Response:
        asked = read(counting=True)
        with asked.paths.errors():
            return json_reply({"input_tokens": service.prompt_tokens(parse_chat(asked.chat, service.served))})

    return routes
