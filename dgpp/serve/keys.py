"""The API key: one secret for all clients, wanted on every route but those that people or supervisors open first."""

from __future__ import annotations

import hmac

from flask import Flask, request

from dgpp.serve.errors import UNAUTHORIZED, ApiError

OPEN_PATHS = frozenset({"/health", "/"})
OPEN_PREFIX = "/page/"  # files of the page, the same for everybody


def install(app: Flask, key: str) -> None:
    """Refuses requests without `key` with 401. It is taken as `Authorization: Bearer KEY`, and as `x-api-key: KEY`,
    which clients of the Messages API send."""
    secret = key.encode("utf-8")

    def is_right(sent: bytes) -> bool:
        return hmac.compare_digest(sent, secret)

    @app.before_request
    def check() -> None:
        path = request.path
        if path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            return
        # WSGI hands header bytes over as Latin-1 characters.
        scheme, _, sent = request.headers.get("Authorization", "").encode("latin-1").partition(b" ")
        if scheme.lower() == b"bearer" and is_right(sent):
            return
        if is_right(request.headers.get("X-Api-Key", "").encode("latin-1")):
            return
        raise ApiError(UNAUTHORIZED, "Send the API key of this server as 'Authorization: Bearer KEY'.")
