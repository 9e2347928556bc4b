"""The routes of the page. Its files are read once; only the names in `FILES` are served."""

from __future__ import annotations

from pathlib import Path

from flask import Blueprint, Response
from werkzeug.exceptions import NotFound

FILES = {
    "chat.css": "text/css; charset=utf-8",
    "chat.js": "text/javascript; charset=utf-8",
    "stream.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
HEADERS = {
    # Only this server's own files and API: a model's text can load or run nothing, whatever it holds.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def blueprint() -> Blueprint:
    """`/` and the files that it needs below `/page/`."""
    routes = Blueprint("page", __name__)
    here = Path(__file__).parent
    page = (here / "chat.html").read_bytes()
    files = {name: (here / name).read_bytes() for name in FILES}

    @routes.get("/")
    def index() -> Response:
        return Response(page, content_type="text/html; charset=utf-8", headers=HEADERS)

    @routes.get("/page/<name>")
    def file(name: str) -> Response:
        if name not in files:
            raise NotFound
        return Response(files[name], content_type=FILES[name], headers=HEADERS)

    return routes
