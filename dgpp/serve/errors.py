"""What a client is told when a request cannot be served: the error table of the HTTP contract as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ErrorKind:
    """One row of the table: the HTTP status and the wire code; the type follows from the status. `retry_after` are the
    seconds after which trying again makes sense, which the response says in `Retry-After`; None where it does not."""

    status: int
    code: str | None = None
    retry_after: int | None = None

    @property
    def type(self) -> str:
        """`invalid_request_error` below 500, else `server_error`."""
        return "invalid_request_error" if self.status < 500 else "server_error"


INVALID = ErrorKind(400)
INVALID_PARAMETER = ErrorKind(400, "invalid_parameter")
UNSUPPORTED_PARAMETER = ErrorKind(400, "unsupported_parameter")
UNSUPPORTED_CONTENT_TYPE = ErrorKind(400, "unsupported_content_type")
UNSUPPORTED_EFFORT = ErrorKind(400, "unsupported_reasoning_effort")
CONTEXT_LENGTH_EXCEEDED = ErrorKind(400, "context_length_exceeded")
TOOLS_UNSUPPORTED = ErrorKind(400, "tools_unsupported")
CONSTRAINED_UNSUPPORTED = ErrorKind(400, "constrained_decoding_unsupported")
UNSUPPORTED_SCHEMA = ErrorKind(400, "unsupported_schema")
INVALID_GRAMMAR = ErrorKind(400, "invalid_grammar")
CONSTRAINT_FAILED = ErrorKind(400, "constraint_failed")
UNAUTHORIZED = ErrorKind(401, "invalid_api_key")
MODEL_NOT_FOUND = ErrorKind(404, "model_not_found")
REQUEST_TOO_LARGE = ErrorKind(413, "request_too_large")
TOO_MANY_REQUESTS = ErrorKind(429, "overloaded", retry_after=1)
"""What OVERLOADED is told as where the operator asks for 429."""
INTERNAL = ErrorKind(500)
OVERLOADED = ErrorKind(503, "overloaded", retry_after=1)
SERVER_SHUTDOWN = ErrorKind(503, "server_shutdown", retry_after=10)
ENGINE_FAILURE = ErrorKind(503, "engine_failure")

BY_CODE: dict[str, ErrorKind] = {
    kind.code: kind
    for kind in (
        INVALID_PARAMETER,
        UNSUPPORTED_PARAMETER,
        UNSUPPORTED_CONTENT_TYPE,
        UNSUPPORTED_EFFORT,
        CONTEXT_LENGTH_EXCEEDED,
        TOOLS_UNSUPPORTED,
        CONSTRAINED_UNSUPPORTED,
        UNSUPPORTED_SCHEMA,
        INVALID_GRAMMAR,
        CONSTRAINT_FAILED,
        UNAUTHORIZED,
        MODEL_NOT_FOUND,
        REQUEST_TOO_LARGE,
        OVERLOADED,
        SERVER_SHUTDOWN,
        ENGINE_FAILURE,
    )
    if kind.code is not None
}
"""The kinds that have a code, by it."""


def kind_of(code: str | None) -> ErrorKind:
    """The kind of an error that another part of the program tells by its code; a plain 400 without one."""
    return INVALID if code is None else BY_CODE[code]


ENGINE_STATES: dict[str, str] = {
    "overloaded": "Too many requests are waiting; try again later.",
    "server_shutdown": "The server is stopping.",
    "engine_failure": "The engine stopped after an error; the server's log says why.",
    "constraint_failed": "The schema or grammar of this answer cannot be followed any further; make it simpler.",
}
"""What clients are told about the engine, by code: its own words may quote an exception."""


class ApiError(Exception):
    """A refusal or failure, as the client reads it. `param` names the field, with its path inside the request."""

    def __init__(self, kind: ErrorKind, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param

    def body(self) -> dict[str, Any]:
        """The JSON object of the response, or of the event inside a stream."""
        return error_body(self.kind, self.message, self.param)


def error_body(kind: ErrorKind, message: str, param: str | None = None) -> dict[str, Any]:
    """OpenAI's error object. `message` and `param` are made safe to encode as UTF-8."""
    return {
        "error": {
            "message": _encodable(message),
            "type": kind.type,
            "param": None if param is None else _encodable(param),
            "code": kind.code,
        }
    }


MAX_TEXT = 1000


def _encodable(text: str) -> str:
    """`text` cut to a readable length and with unpaired surrogates written as escapes: it may quote the client."""
    cut = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
    return cut.encode("utf-8", "backslashreplace").decode("utf-8")
