"""From typed answers to Flask responses, and the tie between a client's connection and its turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from flask import Flask, Response, current_app, g, has_request_context, request

from dgpp.serve import request_ids, sse
from dgpp.serve.errors import INTERNAL, OVERLOADED, TOO_MANY_REQUESTS, UNAUTHORIZED, ApiError, error_body
from dgpp.serve.transport import ON_DISCONNECT
from dgpp.serve.turn import Turn

logger = logging.getLogger(__name__)

OVERLOAD_STATUS = "OVERLOAD_STATUS"
"""The key of the application's configuration that says with which status a full queue is answered."""

Chunks = Iterator[dict[str, Any] | None]
Asked = TypeVar("Asked")


def start(begin: Callable[[Asked], Turn], asked: Asked) -> Turn:
    """The turn of a request, cancelled as soon as the present client hangs up, and closed with the present request
    unless `event_stream` takes it over."""
    turn = begin(asked)
    g.turn, g.turn_id = turn, turn.id
    on_disconnect = request.environ.get(ON_DISCONNECT)
    if on_disconnect is not None:
        on_disconnect(turn.cancel)
    return turn


def close_turns(app: Flask) -> None:
    """Ends what a request has begun and not handed on, whatever went wrong with its answer."""

    @app.teardown_request
    def close(error: BaseException | None) -> None:
        turn = g.pop("turn", None)
        if turn is not None:
            turn.close()


def json_reply(value: dict[str, Any], status: int = 200) -> Response:
    """`value` as a JSON response, keys in order."""
    return Response(sse.encode_json(value), status, mimetype="application/json")


def error_reply(error: ApiError, body: dict[str, Any] | None = None) -> Response:
    """The response for an error, with the headers that belong to its kind. `body` stands in for OpenAI's error object
    on surfaces that have another one."""
    kind = error.kind
    if kind is OVERLOADED and current_app.config[OVERLOAD_STATUS] == TOO_MANY_REQUESTS.status:
        kind = TOO_MANY_REQUESTS
    response = json_reply(error_body(kind, error.message, error.param) if body is None else body, kind.status)
    if kind.retry_after is not None:
        response.headers["Retry-After"] = str(kind.retry_after)
    if kind is UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def completion_error(error: ApiError) -> bytes:
    """The event that ends a completions stream in place of the chunks it owes."""
    return sse.encode_event(error.body())


def event_stream(
    turn: Turn,
    chunks: Chunks,
    ping_interval: int,
    encode: Callable[[dict[str, Any]], bytes] = sse.encode_event,
    *,
    failed: Callable[[ApiError], bytes] = completion_error,
    done: bytes = sse.DONE,
    ping: bytes = sse.KEEP_ALIVE,
) -> Response:
    """A 200 that streams `chunks` and then `done`; the turn ends with the response, however that ends.

    An unforeseen exception becomes the event that `failed` makes: the headers are out already.
    """
    name = f"{request_ids.current()} {turn.id}"

    def body() -> Iterator[bytes]:
        try:
            yield from sse.stream(chunks, ping_interval=ping_interval, encode=encode, ping=ping)
        except Exception:
            logger.exception("request %s failed", name)
            yield failed(ApiError(INTERNAL, "The server failed; its log says why."))
        if done:
            yield done

    if has_request_context():
        g.pop("turn", None)
    response = Response(body(), content_type="text/event-stream", headers={"Cache-Control": "no-cache"})
    # A response whose client left before the first byte never starts its generators.
    response.call_on_close(turn.close)
    return response
