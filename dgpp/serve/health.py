"""GET /health: whether requests can be served. It needs no key, so that a supervisor can ask."""

from __future__ import annotations

from threading import Event

from flask import Blueprint, Response

from dgpp.serve.errors import ENGINE_STATES
from dgpp.serve.replies import json_reply
from dgpp.serve.service import Service


def blueprint(service: Service, closing: Event) -> Blueprint:
    """The route: 200 `ok`, or 503 `failed` after the engine stopped and `stopping` once no new work is taken."""
    routes = Blueprint("health", __name__)

    @routes.get("/health")
    def show() -> Response:
        model = service.served.names[0]
        if service.engine.stats().failed is not None:
            return json_reply({"status": "failed", "model": model, "error": ENGINE_STATES["engine_failure"]}, 503)
        if closing.is_set():
            return json_reply({"status": "stopping", "model": model, "error": ENGINE_STATES["server_shutdown"]}, 503)
        return json_reply({"status": "ok", "model": model})

    return routes
