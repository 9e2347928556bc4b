"""GET /v1/models: what is served here, and what it can do."""

from __future__ import annotations

import time
from typing import Any

from flask import Blueprint, Response

from dgpp.serve.errors import MODEL_NOT_FOUND, ApiError
from dgpp.serve.replies import json_reply
from dgpp.serve.requests.decoding import SAMPLING_FIELDS
from dgpp.serve.service import Service


def blueprint(service: Service) -> Blueprint:
    """The routes. An id may contain slashes. One model's object also has the digests of its files."""
    routes = Blueprint("models", __name__)

    @routes.get("/v1/models")
    def index() -> Response:
        return json_reply({"object": "list", "data": [model_object(service, name) for name in service.served.names]})

    @routes.get("/v1/models/<path:name>")
    def show(name: str) -> Response:
        if name not in service.served.names:
            raise ApiError(MODEL_NOT_FOUND, f"The model {name!r} is not served here.", "model")
        detail = {} if service.digests is None else {"digests": service.digests()}
        return json_reply({**model_object(service, name), **detail})

    return routes


def model_object(service: Service, name: str) -> dict[str, Any]:
    """The model as clients see it under one of its names."""
    info = service.engine.info
    return {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "dgpp",
        "sampling": {
            "available": True,
            "defaults": {field: getattr(service.sampling_defaults, field) for field in SAMPLING_FIELDS},
        },
        "tools": {"available": service.served.dialect is not None, "constrained": service.served.constrains},
        "response_format": {"json_object": service.served.constrains, "json_schema": service.served.constrains},
        "reasoning": {
            "in_content": service.reasoning_in_content,
            "effort_mapping": service.served.controls.mapping(),
            "template_variables": service.template_variables,
        },
        "default_chat_template_kwargs": service.template_defaults,
        "input_modalities": ["text"],
        **({} if service.rope_scaling is None else {"rope_scaling": service.rope_scaling}),
        "context": {
            "request_limit_tokens": info.context_limit,
            "position_ceiling_tokens": info.position_ceiling,
            "kv_pool_tokens": info.pool_tokens,
            "limited_by": "position-ceiling" if info.position_ceiling <= info.pool_tokens else "kv-pool",
        },
    }
