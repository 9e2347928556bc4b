"""The errors about files (spec/api.md §9)."""

from __future__ import annotations

from dgpp.serve.errors import INTERNAL, INVALID, SERVER_SHUTDOWN, ApiError, ErrorKind
from dgpp.text.file_error import FileError, FileFault

PDF_TEXT_UNAVAILABLE = ErrorKind(400, "pdf_text_unavailable")
FILE_NOT_FOUND = ErrorKind(404, "file_not_found")
TIMEOUT = ErrorKind(408)
FILE_TOO_LARGE = ErrorKind(413, "file_too_large")
STORAGE_FULL = ErrorKind(413, "file_storage_full")
EXTRACTOR_UNAVAILABLE = ErrorKind(503, "pdf_extractor_unavailable")
BUSY = ErrorKind(503, "file_processing_busy", retry_after=1)

_KINDS: dict[FileFault, ErrorKind] = {
    "invalid": INVALID,
    "name": INVALID,
    "no_text": PDF_TEXT_UNAVAILABLE,
    "text_too_long": FILE_TOO_LARGE,
    "timeout": TIMEOUT,
    "unavailable": EXTRACTOR_UNAVAILABLE,
    "stopped": SERVER_SHUTDOWN,
}


def unreadable(error: FileError, param: str) -> ApiError:
    """What a client is told about a file that gives no text."""
    return ApiError(_KINDS[error.fault], f"{param} cannot be used: {error.message}.", param)


def not_found(id: str, param: str | None = None) -> ApiError:
    """What a client is told about an id that stands for no file."""
    return ApiError(FILE_NOT_FOUND, f"There is no file {id!r} here.", param)


def not_stored() -> ApiError:
    """What a client is told when the disk fails."""
    return ApiError(INTERNAL, "The files of this server cannot be read or written now; its log says why.")
