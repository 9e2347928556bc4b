"""GET /health: whether requests can be served. It needs no key, so that a supervisor can ask."""

from __future__ import annotations

from flask import Blueprint, Response

from dgpp.serve.errors import ENGINE_STATES
from dgpp.serve.replies import json_reply
from dgpp.serve.service import Service


def blueprint(service: Service) -> Blueprint:
    """The route."""
    routes = Blueprint("health", __name__)

    @routes.get("/health")
    def show() -> Response:
        model = service.served.names[0]
        if service.engine.stats().failed is not None:
            return json_reply({"status": "failed", "model": model, "error": ENGINE_STATES["engine_failure"]}, 503)
        return json_reply({"status": "ok", "model": model})

    return routes
