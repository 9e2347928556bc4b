"""GET /openapi.json: the description of this API, made from the declarations that parse requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flask import Blueprint, Response

from dgpp import __version__
from dgpp.serve.anthropic.fields import COUNT_FIELDS, MESSAGE_FIELDS
from dgpp.serve.openapi_answers import ANSWERS, ref
from dgpp.serve.replies import json_reply
from dgpp.serve.requests.chat import CHAT_FIELDS
from dgpp.serve.requests.completion import COMPLETION_FIELDS
from dgpp.serve.requests.fields import Field, Schema
from dgpp.serve.responses.fields import RESPONSE_FIELDS

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass(frozen=True)
class Operation:
    """One method of one path. `answer` is the name of the answer's schema, or a media type that has none; `events` the
    name of a stream's, for requests that ask for one."""

    method: str
    path: str
    doc: str
    answer: str
    fields: tuple[Field, ...] = ()
    required: tuple[str, ...] = ()
    events: str | None = None
    form: Schema | None = None
    open: bool = False  # needs no key
    failed: bool = False  # a 503 has the same shape
    error: str = "Error"
    parameters: tuple[str, ...] = field(default=())


_UPLOAD: Schema = {
    "type": "object",
    "properties": {"file": {"type": "string", "format": "binary"}, "purpose": {"enum": ["user_data", "assistants"]}},
    "required": ["file", "purpose"],
}
_MESSAGES = "/v1/messages"

OPERATIONS = (
    Operation(
        "post",
        "/v1/chat/completions",
        "The next message of a conversation.",
        "ChatCompletion",
        CHAT_FIELDS,
        ("model", "messages"),
        "ChatCompletionChunk",
    ),
    Operation(
        "post",
        "/v1/completions",
        "The continuation of a text.",
        "Completion",
        COMPLETION_FIELDS,
        ("model", "prompt"),
        "Completion",
    ),
    Operation(
        "post",
        "/v1/responses",
        "An answer as the Responses API gives it.",
        "Response",
        RESPONSE_FIELDS,
        ("model", "input"),
        "ResponseEvent",
    ),
    Operation(
        "post",
        _MESSAGES,
        "An answer as the Anthropic Messages API gives it.",
        "Message",
        MESSAGE_FIELDS,
        ("model", "max_tokens", "messages"),
        "MessageEvent",
        error="MessagesError",
    ),
    Operation(
        "post",
        f"{_MESSAGES}/count_tokens",
        "How many tokens a prompt has.",
        "TokenCount",
        COUNT_FIELDS,
        ("model", "messages"),
        error="MessagesError",
    ),
    Operation("get", "/v1/models", "What is served.", "ModelList"),
    Operation("get", "/v1/models/{name}", "One model. Its id may contain slashes.", "Model", parameters=("name",)),
    Operation("get", "/v1/files", "The kept files.", "FileList"),
    Operation("post", "/v1/files", "Keeps a file.", "File", form=_UPLOAD),
    Operation("get", "/v1/files/{id}", "One file.", "File", parameters=("id",)),
    Operation("get", "/v1/files/{id}/content", "Its bytes.", "application/octet-stream", parameters=("id",)),
    Operation("delete", "/v1/files/{id}", "Forgets a file.", "FileDeleted", parameters=("id",)),
    Operation("get", "/health", "Whether requests can be served.", "Health", open=True, failed=True),
    Operation("get", "/metrics", "Counters.", "Metrics"),
    Operation("get", "/v1/metrics", "The same.", "Metrics"),
    Operation("get", "/metrics/prometheus", "Counters for Prometheus.", "text/plain; version=0.0.4; charset=utf-8"),
    Operation("get", "/openapi.json", "This description.", JSON),
    Operation("get", "/", "A page to chat with the model.", "text/html; charset=utf-8", open=True),
    Operation("get", "/page/{name}", "A file of the page.", "*/*", open=True, parameters=("name",)),
)
"""Every route of the server."""


def blueprint(wants_key: bool) -> Blueprint:
    """The route. `wants_key` says that the server has an API key."""
    routes = Blueprint("openapi", __name__)
    made = document(wants_key)

    @routes.get("/openapi.json")
    def show() -> Response:
        return json_reply(made)

    return routes


def document(wants_key: bool = False) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    schemes = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dgpp",
            "version": __version__,
            "description": "Local models behind the APIs of OpenAI and Anthropic. Unknown keys of requests are "
            "ignored. Every answer carries X-Request-Id, which a request may choose.",
        },
        "paths": paths,
        "components": {"schemas": ANSWERS, **({"securitySchemes": schemes} if wants_key else {})},
        **({"security": [{"bearer": []}]} if wants_key else {}),
    }


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {"summary": operation.doc}
    if operation.parameters:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in operation.parameters
        ]
    if operation.fields:
        described["requestBody"] = _body(JSON, request_schema(operation.fields, operation.required))
    elif operation.form is not None:
        described["requestBody"] = _body("multipart/form-data", operation.form)
    described["responses"] = _responses(operation)
    if operation.open:
        described["security"] = []
    return described


def _body(media: str, schema: Schema) -> dict[str, Any]:
    return {"required": True, "content": {media: {"schema": schema}}}


def _responses(operation: Operation) -> dict[str, Any]:
    if operation.answer in ANSWERS:
        content: dict[str, Any] = {JSON: {"schema": ref(operation.answer)}}
    else:
        content = {operation.answer: {}}
    if operation.events is not None:
        content[EVENTS] = {"x-event-schema": ref(operation.events)}
    error = {"description": "Why not.", "content": {JSON: {"schema": ref(operation.error)}}}
    answered = {"200": {"description": operation.doc, "content": content}}
    if operation.failed:
        answered["503"] = answered["200"]
    return {**answered, "4XX": error, "5XX": error}


def request_schema(fields: Sequence[Field], required: Sequence[str]) -> Schema:
    """The JSON Schema of a request body. Fields that are refused, whatever they hold, have no schema."""
    properties = {each.name: {"description": each.doc, **each.schema} for each in fields if each.schema is not None}
    return {"type": "object", "properties": properties, "required": list(required)}
