"""GET /metrics (JSON) and /metrics/prometheus: the engine's counters and those of the HTTP side."""

from __future__ import annotations

from flask import Blueprint, Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from dgpp.serve.metrics.as_json import snapshot
from dgpp.serve.metrics.as_text import Families
from dgpp.serve.replies import json_reply
from dgpp.serve.service import Service


def blueprint(service: Service) -> Blueprint:
    """The routes."""
    routes = Blueprint("metrics", __name__)
    families = Families(service)

    @routes.get("/metrics")
    @routes.get("/v1/metrics")
    def as_json() -> Response:
        return json_reply(snapshot(service))

    @routes.get("/metrics/prometheus")
    def as_text() -> Response:
        return Response(generate_latest(families), content_type=CONTENT_TYPE_PLAIN_0_0_4)

    return routes
