"""The Flask application: routes, the API key, and errors in OpenAI's shape, whatever goes wrong."""

from __future__ import annotations

import hmac
import logging

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from dgpp.serve import chat, completions, health, metrics, models
from dgpp.serve.errors import INTERNAL, REQUEST_TOO_LARGE, UNAUTHORIZED, ApiError, ErrorKind
from dgpp.serve.replies import error_reply
from dgpp.serve.service import Service
from dgpp.serve.settings import Settings

logger = logging.getLogger(__name__)


def create_app(service: Service, settings: Settings) -> Flask:
    """The WSGI application that serves `service`."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False
    for surface in (chat, completions, models, health, metrics):
        app.register_blueprint(surface.blueprint(service))
    if settings.api_key is not None:
        _require_key(app, settings.api_key)
    _shape_errors(app, service, settings)
    return app


def _require_key(app: Flask, key: str) -> None:
    @app.before_request
    def check() -> None:
        # WSGI hands header bytes over as Latin-1 characters.
        scheme, _, sent = request.headers.get("Authorization", "").encode("latin-1").partition(b" ")
        right = hmac.compare_digest(sent, key.encode("utf-8")) and scheme.lower() == b"bearer"
        if request.path != "/health" and not right:
            raise ApiError(UNAUTHORIZED, "Send the API key of this server as 'Authorization: Bearer KEY'.")


def _shape_errors(app: Flask, service: Service, settings: Settings) -> None:
    def reply(error: ApiError) -> Response:
        if error.kind.status < 500:
            service.telemetry.count("rejects_bad")
        response = error_reply(error)
        if error.kind is UNAUTHORIZED:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response

    @app.errorhandler(ApiError)
    def refused(error: ApiError) -> Response:
        return reply(error)

    @app.errorhandler(HTTPException)
    def routed(error: HTTPException) -> Response:
        status = error.code or INTERNAL.status
        match status:
            case 404:
                shaped = ApiError(ErrorKind(404), f"There is no {request.path} here.")
            case 405:
                shaped = ApiError(ErrorKind(405), f"{request.method} is not allowed on {request.path}.")
            case 413:
                shaped = ApiError(REQUEST_TOO_LARGE, f"The body exceeds max_body_bytes ({settings.max_body_bytes}).")
            case _:
                shaped = ApiError(ErrorKind(status), error.name)
        response = reply(shaped)
        if status == 405:
            response.headers.extend(pair for pair in error.get_headers() if pair[0] == "Allow")
        return response

    @app.errorhandler(Exception)
    def failed(error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
        return reply(ApiError(INTERNAL, "The server failed; its log says why."))
