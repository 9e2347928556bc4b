"""The one form that is uploaded here: a file and what it is for (spec/api.md §9)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, Preamble

from dgpp.serve.errors import INVALID, ApiError
from dgpp.serve.file_store import PURPOSES

MAX_NAME_BYTES = 1024
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")


@dataclass(frozen=True)
class Upload:
    """A file as it was sent."""

    filename: str
    purpose: str
    data: bytes


def parse_upload(content_type: str, body: bytes) -> Upload:
    """The upload in a multipart/form-data body, which must hold exactly one `file` and one `purpose`.

    Raises ApiError.
    """
    kind, options = parse_options_header(content_type)
    boundary = options.get("boundary", "")
    if kind != "multipart/form-data" or not _BOUNDARY.fullmatch(boundary):
        message = "Send multipart/form-data with a boundary of 1 to 70 characters."
        raise ApiError(INVALID, message)
    parts = _parts(boundary.encode("ascii"), body)
    for name in ("file", "purpose"):
        if sum(part.name == name for part, _ in parts) != 1:
            raise ApiError(INVALID, f"Send exactly one field {name}.", name)
    for part, _ in parts:
        if part.name not in ("file", "purpose"):
            raise ApiError(INVALID, f"There is no field {part.name!r}; send file and purpose.", part.name)
    found = {part.name: (part, data) for part, data in parts}
    (file, data), (field, purpose) = found["file"], found["purpose"]
    if not isinstance(file, File) or not file.filename or len(file.filename.encode()) > MAX_NAME_BYTES:
        raise ApiError(INVALID, f"file must be sent with a file name of 1 to {MAX_NAME_BYTES} bytes.", "file")
    if isinstance(field, File) or purpose.decode("utf-8", "replace") not in PURPOSES:
        raise ApiError(INVALID, f"purpose must be one of {', '.join(PURPOSES)}.", "purpose")
    return Upload(file.filename, purpose.decode(), data)


def _parts(boundary: bytes, body: bytes) -> list[tuple[Field | File, bytes]]:
    """The parts of a body that is well formed to its end."""
    decoder = MultipartDecoder(boundary, max_parts=8)
    decoder.receive_data(body)
    decoder.receive_data(None)
    parts: list[tuple[Field | File, bytearray]] = []
    try:
        while True:
            event = decoder.next_event()
            match event:
                case Preamble() | Epilogue() if event.data.strip():
                    raise ValueError
                case Epilogue():
                    return [(part, bytes(data)) for part, data in parts]
                case Field() | File():
                    if not isinstance(event.name, str):
                        raise ValueError
                    parts.append((event, bytearray()))
                case Data():
                    parts[-1][1].extend(event.data)
    except (ValueError, AttributeError, RequestEntityTooLarge):
        # The decoder raises an AttributeError where the line break after a part's head is missing.
        raise ApiError(INVALID, "The body is not well-formed multipart/form-data of its boundary.") from None
