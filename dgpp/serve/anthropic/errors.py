"""Errors as clients of the Messages API read them."""

from __future__ import annotations

from typing import Any

from flask import Response

from dgpp.serve import replies
from dgpp.serve.errors import CONTEXT_LENGTH_EXCEEDED, OVERLOADED, ApiError

ROOT = "/v1/messages"

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def owns(path: str) -> bool:
    """Whether a request path belongs to the Messages API."""
    return path == ROOT or path.startswith(f"{ROOT}/")


def error_object(error: ApiError) -> dict[str, Any]:
    """The error object of a response, or of the `error` event inside a stream.

    It has no place for the field at fault, so the message names it. Agents shorten their history when they read that
    the prompt is too long.
    """
    message = error.body()["error"]["message"]
    param = error.body()["error"]["param"]
    if error.kind is CONTEXT_LENGTH_EXCEEDED:
        message = f"prompt is too long: {message}"
    elif param is not None and param not in message:
        message = f"{param}: {message}"
    if error.kind is OVERLOADED:
        kind = "overloaded_error"
    elif error.kind.status >= 500:
        kind = "api_error"
    else:
        kind = _TYPES.get(error.kind.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def error_reply(error: ApiError) -> Response:
    """The response for an error."""
    return replies.error_reply(error, error_object(error))
