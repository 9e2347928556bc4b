"""/v1/files: files are sent once and named in messages by their ids (spec/api.md §9)."""

from __future__ import annotations

from flask import Blueprint, Response, request

from dgpp.serve.errors import ApiError
from dgpp.serve.files.errors import FILE_TOO_LARGE
from dgpp.serve.files.multipart import parse_upload
from dgpp.serve.replies import json_reply
from dgpp.serve.service import Service


def blueprint(service: Service) -> Blueprint:
    """The routes."""
    routes = Blueprint("files", __name__)
    files = service.files

    @routes.post("/v1/files")
    def upload() -> Response:
        sent = parse_upload(request.headers.get("Content-Type", ""), request.get_data())
        limit = files.limits.file_bytes
        if len(sent.data) > limit:
            raise ApiError(FILE_TOO_LARGE, f"file has more than max_file_bytes ({limit}).", "file")
        return json_reply(files.shelf.add(sent.filename, sent.purpose, sent.data).object())

    @routes.get("/v1/files")
    def index() -> Response:
        data = [file.object() for file in files.shelf.all()]
        return json_reply({"object": "list", "data": data, "has_more": False})

    @routes.get("/v1/files/<id>")
    def show(id: str) -> Response:
        return json_reply(files.shelf.get(id).object())

    @routes.get("/v1/files/<id>/content")
    def content(id: str) -> Response:
        return Response(files.shelf.read(id), mimetype="application/octet-stream")

    @routes.delete("/v1/files/<id>")
    def delete(id: str) -> Response:
        files.shelf.delete(id)
        return json_reply({"id": id, "object": "file", "deleted": True})

    return routes
