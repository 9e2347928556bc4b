"""Cross-origin requests: which web pages may read answers. Off by default; this server's own page needs none."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Flask, Response, request

ANY = "*"
EXPOSED = "X-Request-Id, Retry-After"
METHODS = "GET, POST, DELETE"
MAX_AGE = "600"  # seconds for which a browser may remember a preflight


def install(app: Flask, origins: Sequence[str]) -> None:
    """Lets pages of `origins` (`*`: all) read the answers of `app`, and answers their preflights with 204.

    Credentials of the browser (cookies) are never allowed; an API key travels in a header that the page sets itself.
    """

    def allowed() -> bool:
        origin = request.headers.get("Origin")
        return origin is not None and (ANY in origins or origin in origins)

    @app.before_request
    def preflight() -> Response | None:
        if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers or not allowed():
            return None
        response = Response(status=204)
        response.headers["Access-Control-Allow-Methods"] = METHODS
        asked = request.headers.get("Access-Control-Request-Headers")
        if asked is not None:
            response.headers["Access-Control-Allow-Headers"] = asked
        response.headers["Access-Control-Max-Age"] = MAX_AGE
        return response

    @app.after_request
    def mark(response: Response) -> Response:
        if ANY not in origins:
            response.vary.add("Origin")
        if allowed():
            origin = ANY if ANY in origins else request.headers["Origin"]
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = EXPOSED
        return response
