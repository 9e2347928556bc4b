"""File parts of user messages, replaced by the text of their files (spec/api.md §9)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dgpp.serve.errors import INVALID, ApiError
from dgpp.serve.files.errors import FILE_TOO_LARGE, unreadable
from dgpp.serve.files.multipart import MAX_NAME_BYTES
from dgpp.serve.files.store import FileLimits, FileStore
from dgpp.text.file_error import FileError
from dgpp.text.files import file_text, framed

_DATA_URL = re.compile(r"data:[^,]{0,256};base64,")


def resolve_files(messages: list[Any], store: FileStore, limits: FileLimits) -> list[Any]:
    """`messages` with text parts in the place of file parts; what has another shape is left for its own parser.

    Raises ApiError naming the part.
    """
    places = list(_places(messages))
    if not places:
        return messages
    with store.worker():
        reader = _Reader(store, limits)
        found = {(at, index): reader.text(part, path, first=index == 0) for at, index, part, path in places}
    resolved: list[Any] = []
    for at, message in enumerate(messages):
        if any(place[0] == at for place in found):
            content = [
                {"type": "text", "text": found[at, index]} if (at, index) in found else part
                for index, part in enumerate(message["content"])
            ]
            message = {**message, "content": content}
        resolved.append(message)
    return resolved


def _places(messages: list[Any]) -> Iterator[tuple[int, int, dict[str, Any], str]]:
    """(message, part, its object, its path) of every file part."""
    for at, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("content"), list):
            continue
        for index, part in enumerate(message["content"]):
            if isinstance(part, dict) and part.get("type") == "file":
                path = f"messages[{at}].content[{index}].file"
                if message.get("role") != "user":
                    raise ApiError(INVALID, f"{path} is possible in messages of the user only.", path)
                if not isinstance(part.get("file"), dict):
                    raise ApiError(INVALID, f"{path} must be an object.", path)
                yield at, index, part["file"], path


@dataclass
class _Reader:
    """Reads the files of one request, and counts what they add up to."""

    store: FileStore
    limits: FileLimits
    data_bytes: int = 0
    text_bytes: int = 0

    def text(self, file: dict[str, Any], path: str, *, first: bool) -> str:
        """The framed text of a file; it begins a line of its own."""
        name, data, param = self._data(file, path)
        self.data_bytes += len(data)
        if self.data_bytes > self.limits.request_bytes:
            raise _too_large(path, "The files of a request have", "max_file_request_bytes", self.limits.request_bytes)
        try:
            text = file_text(name, data, self.store.pdf, self.limits.text_bytes - self.text_bytes)
        except FileError as error:
            if error.fault == "text_too_long":
                limit = self.limits.text_bytes
                raise _too_large(path, "The texts of the files have", "max_file_text_bytes", limit) from None
            raise unreadable(error, f"{path}.filename" if error.fault == "name" else param) from None
        self.text_bytes += len(text.encode())
        return framed(name, text) if first else "\n" + framed(name, text)

    def _data(self, file: dict[str, Any], path: str) -> tuple[str | None, bytes, str]:
        """(name, bytes, the path that they come from)."""
        given = [key for key in ("file_data", "file_id") if file.get(key) is not None]
        if len(given) != 1:
            raise ApiError(INVALID, f"{path} must have exactly one of file_data and file_id.", path)
        param = f"{path}.{given[0]}"
        value, name = file[given[0]], file.get("filename")
        if name is not None and not (isinstance(name, str) and 0 < len(name.encode()) <= MAX_NAME_BYTES):
            param = f"{path}.filename"
            raise ApiError(INVALID, f"{param} must be a string of 1 to {MAX_NAME_BYTES} bytes.", param)
        if not isinstance(value, str):
            raise ApiError(INVALID, f"{param} must be a string.", param)
        if given[0] == "file_data":
            return name, self._decoded(value, param), param
        kept = self.store.shelf.get(value, param)
        return name or kept.filename, self.store.shelf.read(value, param), param

    def _decoded(self, value: str, param: str) -> bytes:
        """The bytes of canonical base64, after an optional data: prefix."""
        prefix = _DATA_URL.match(value)
        encoded = value[prefix.end() :] if prefix else value
        if len(encoded) // 4 * 3 - encoded[-2:].count("=") > self.limits.file_bytes:
            raise _too_large(param, "The file has", "max_file_bytes", self.limits.file_bytes)
        try:
            data = base64.b64decode(encoded.encode("ascii"), validate=True)
            canonical = bool(data) and base64.b64encode(data[-(len(data) % 3 or 3) :]).decode() == encoded[-4:]
        except (binascii.Error, UnicodeEncodeError):
            canonical = False
        if not canonical:
            raise ApiError(INVALID, f"{param} must be canonical base64 with its padding, and not empty.", param)
        return data


def _too_large(param: str, what: str, setting: str, limit: int) -> ApiError:
    return ApiError(FILE_TOO_LARGE, f"{what} more than {setting} ({limit}) bytes.", param)
