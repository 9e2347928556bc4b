"""From typed answers to Flask responses, and the tie between a client's connection and its turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from flask import Response, request

from dgpp.serve import sse
from dgpp.serve.errors import INTERNAL, ApiError, error_body
from dgpp.serve.transport import ON_DISCONNECT
from dgpp.serve.turn import Turn

logger = logging.getLogger(__name__)

Chunks = Iterator[dict[str, Any] | None]
Asked = TypeVar("Asked")


def start(begin: Callable[[Asked], Turn], asked: Asked) -> Turn:
    """The turn of a request, cancelled as soon as the present client hangs up."""
    turn = begin(asked)
    on_disconnect = request.environ.get(ON_DISCONNECT)
    if on_disconnect is not None:
        on_disconnect(turn.cancel)
    return turn


def json_reply(value: dict[str, Any], status: int = 200) -> Response:
    """`value` as a JSON response, keys in order."""
    return Response(sse.encode_json(value), status, mimetype="application/json")


def error_reply(error: ApiError) -> Response:
    """The response for an error."""
    return json_reply(error.body(), error.kind.status)


def event_stream(
    turn: Turn,
    chunks: Chunks,
    ping_interval: int,
    encode: Callable[[dict[str, Any]], bytes] = sse.encode_event,
) -> Response:
    """A 200 that streams `chunks`; the turn ends with the response, however that ends."""
    body = sse.stream(_guarded(chunks, turn.id), ping_interval=ping_interval, encode=encode)
    response = Response(body, content_type="text/event-stream", headers={"Cache-Control": "no-cache"})
    # A response whose client left before the first byte never starts its generators.
    response.call_on_close(turn.close)
    return response


def _guarded(chunks: Chunks, id: str) -> Chunks:
    """`chunks`, and an error object in the place of an unforeseen exception: the headers are out already."""
    try:
        yield from chunks
    except Exception:
        logger.exception("request %s failed", id)
        yield error_body(INTERNAL, "The server failed; its log says why.")
