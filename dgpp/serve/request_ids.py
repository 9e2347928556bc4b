"""Request ids: taken from `X-Request-Id` or made here, sent back, and written in every log line about a request."""

from __future__ import annotations

import logging
import re
import secrets

from flask import Flask, Response, g, has_request_context, request

logger = logging.getLogger(__name__)

HEADER = "X-Request-Id"
_USABLE = re.compile(r"[!-~]{1,128}")  # visible ASCII: it goes into a header and into a log


def install(app: Flask) -> None:
    """Gives every request of `app` an id, and logs one line when its answer begins: POST and DELETE at INFO, the
    rest, which monitors repeat all day, at DEBUG."""

    @app.before_request
    def take() -> None:
        sent = request.headers.get(HEADER, "")
        g.request_id = sent if _USABLE.fullmatch(sent) else "req_" + secrets.token_hex(12)

    @app.after_request
    def give(response: Response) -> Response:
        response.headers[HEADER] = current()
        level = logging.INFO if request.method in ("POST", "DELETE") else logging.DEBUG
        logger.log(level, "%s: %d%s", described(), response.status_code, f" {g.turn_id}" if "turn_id" in g else "")
        return response


def current() -> str:
    """The id of the request being served, `-` outside of one."""
    return g.get("request_id", "-") if has_request_context() else "-"


def described() -> str:
    """The present request for a log: id, method, and path with what is not visible ASCII escaped."""
    path = request.path.encode("unicode_escape").decode("ascii")
    return f"{current()} {request.method} {path[:200]}"
