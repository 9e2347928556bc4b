"""The one form that is uploaded here: a file and what it is for (spec/api.md §9)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from werkzeug.http import parse_options_header

from dgpp.serve.errors import INVALID, ApiError
from dgpp.serve.files.shelf import PURPOSES

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
    parts = _parts(boundary, body)
    for name in ("file", "purpose"):
        if sum(part.name == name for part in parts) != 1:
            raise ApiError(INVALID, f"Send exactly one field {name}.", name)
    for part in parts:
        if part.name not in ("file", "purpose"):
            raise ApiError(INVALID, f"There is no field {part.name!r}; send file and purpose.", part.name)
    file, purpose = (next(part for part in parts if part.name == name) for name in ("file", "purpose"))
    if not file.filename or len(file.filename.encode()) > MAX_NAME_BYTES:
        raise ApiError(INVALID, f"file must be sent with a file name of 1 to {MAX_NAME_BYTES} bytes.", "file")
    if purpose.filename is not None or purpose.data not in (known.encode() for known in PURPOSES):
        raise ApiError(INVALID, f"purpose must be one of {', '.join(PURPOSES)}.", "purpose")
    return Upload(file.filename, purpose.data.decode(), file.data)


@dataclass(frozen=True)
class _Part:
    name: str
    filename: str | None
    data: bytes


def _parts(boundary: str, body: bytes) -> list[_Part]:
    """The parts of a body that is well formed to its end.

    Only a whole line, with CRLF before and after it, delimits: werkzeug's decoder also takes a lone CR or LF, of which
    text files are full.
    """
    line = re.compile(rb"\r\n--" + re.escape(boundary.encode("ascii")) + rb"(?:[ \t]*(?=\r\n)|(--)[ \t]*(?:\r\n)?\Z)")
    parts: list[_Part] = []
    begin = None
    for found in line.finditer(b"\r\n" + body):
        if begin is None and found.string[: found.start()].strip(b"\r\n"):  # some clients begin with an empty line
            break
        if begin is not None:
            parts.append(_part(found.string[begin : found.start()]))
        begin = found.end()
        if found.group(1):
            return parts
    raise _malformed()


def _part(data: bytes) -> _Part:
    """The part in the bytes between two delimiters, which begin with the end of the first one's line."""
    head, blank, content = data.partition(b"\r\n\r\n")
    try:
        lines = head.decode("utf-8").split("\r\n")[1:]
    except UnicodeDecodeError:
        raise _malformed() from None
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    kind, options = parse_options_header(headers.get("content-disposition"))
    plain = headers.get("content-transfer-encoding", "binary").lower() in ("binary", "8bit", "7bit")
    if not blank or not plain or len(headers) != len(lines) or kind != "form-data" or "name" not in options:
        raise _malformed()
    return _Part(options["name"], options.get("filename"), content)


def _malformed() -> ApiError:
    return ApiError(INVALID, "The body is not well-formed multipart/form-data of its boundary.")
