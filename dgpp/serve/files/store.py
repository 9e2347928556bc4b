"""What a server needs to take files: the kept ones, the reader of PDFs, and the limits (spec/api.md §9)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dgpp.serve.errors import ApiError
from dgpp.serve.files.errors import BUSY
from dgpp.serve.files.shelf import Shelf
from dgpp.serve.settings import Settings
from dgpp.text.pdf import PdfReader


@dataclass(frozen=True)
class FileLimits:
    """What files may need. Bytes are inclusive."""

    file_bytes: int
    request_bytes: int  # all files of one request
    text_bytes: int  # all text of the files of one request
    storage_bytes: int  # all kept files
    pdf_timeout: float  # seconds
    workers: int  # requests whose files are read at once

    @classmethod
    def of(cls, settings: Settings) -> FileLimits:
        """The limits among the settings."""
        return cls(
            settings.max_file_bytes,
            settings.max_file_request_bytes,
            settings.max_file_text_bytes,
            settings.max_file_storage_bytes,
            settings.pdf_timeout,
            settings.file_workers,
        )


class FileStore:
    """The files of a server. `close` must be called at its end.

    Raises ValueError for a directory that cannot be used.
    """

    def __init__(self, directory: str | None, limits: FileLimits) -> None:
        self.limits = limits
        self.shelf = Shelf(directory, limits.storage_bytes)
        self.pdf = PdfReader(limits.pdf_timeout)
        self._workers = threading.BoundedSemaphore(limits.workers)

    @classmethod
    def of(cls, settings: Settings) -> FileStore:
        """The store that the settings describe."""
        return cls(settings.files_directory, FileLimits.of(settings))

    @contextmanager
    def worker(self) -> Iterator[None]:
        """The right to read the files of one request. Raises ApiError when all workers are busy."""
        if not self._workers.acquire(blocking=False):
            raise ApiError(BUSY, "The files of too many requests are being read; try again later.", "file")
        try:
            yield
        finally:
            self._workers.release()

    def close(self) -> None:
        """Ends what is being read, and removes files that are not to be kept."""
        self.pdf.close()
        self.shelf.close()
