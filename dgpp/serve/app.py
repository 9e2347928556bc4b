"""The Flask application: routes, what every request goes through, and errors in OpenAI's shape, whatever goes wrong."""

from __future__ import annotations

import logging
from threading import Event

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from dgpp.serve import (
    anthropic,
    chat,
    completions,
    cors,
    health,
    keys,
    models,
    openapi,
    page,
    request_ids,
    responses,
)
from dgpp.serve.errors import (
    ENGINE_STATES,
    INTERNAL,
    REQUEST_TOO_LARGE,
    SERVER_SHUTDOWN,
    ApiError,
    ErrorKind,
)
from dgpp.serve.files import routes as files
from dgpp.serve.metrics import routes as metrics
from dgpp.serve.replies import OVERLOAD_STATUS, close_turns, error_reply
from dgpp.serve.service import Service
from dgpp.serve.settings import Settings

logger = logging.getLogger(__name__)


def create_app(service: Service, settings: Settings, closing: Event | None = None) -> Flask:
    """The WSGI application that serves `service`. While `closing` is set, work that is not begun is refused."""
    closing = closing or Event()
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.config[OVERLOAD_STATUS] = settings.overload_status
    app.url_map.merge_slashes = False
    for surface in (chat, completions, responses, anthropic, files, models, metrics):
        app.register_blueprint(surface.blueprint(service))
    app.register_blueprint(health.blueprint(service, closing))
    app.register_blueprint(openapi.blueprint(settings.api_key is not None))
    app.register_blueprint(page.blueprint())
    request_ids.install(app)
    if settings.cors_origins:
        cors.install(app, settings.cors_origins)
    if settings.api_key is not None:
        keys.install(app, settings.api_key)
    _refuse_when_closing(app, closing)
    _count_refusals(app, service)
    close_turns(app)
    _shape_errors(app, settings)
    return app


def _refuse_when_closing(app: Flask, closing: Event) -> None:
    @app.before_request
    def check() -> None:
        if closing.is_set() and request.method == "POST":
            raise ApiError(SERVER_SHUTDOWN, ENGINE_STATES["server_shutdown"])


def _count_refusals(app: Flask, service: Service) -> None:
    @app.after_request
    def count(response: Response) -> Response:
        if 400 <= response.status_code < 500:
            service.telemetry.count("rejects_bad")
        return response


def _shape_errors(app: Flask, settings: Settings) -> None:
    @app.errorhandler(ApiError)
    def refused(error: ApiError) -> Response:
        return anthropic.error_reply(error) if anthropic.owns(request.path) else error_reply(error)

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
        response = refused(shaped)
        if status == 405:
            response.headers.extend(pair for pair in error.get_headers() if pair[0] == "Allow")
        return response

    @app.errorhandler(Exception)
    def failed(error: Exception) -> Response:
        logger.error("%s failed", request_ids.described(), exc_info=error)
        return refused(ApiError(INTERNAL, "The server failed; its log says why."))
