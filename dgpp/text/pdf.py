"""Text from PDF files, each read by a process of its own within a time limit."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from dgpp.text import pdf_worker
from dgpp.text.file_error import FileError

MAGIC = b"%PDF-"


class PdfReader:
    """Reads PDF files. `timeout` is in seconds, for each. From any thread."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def text(self, data: bytes, limit: int) -> str:
        """The text of a document's pages; at most `limit` bytes of UTF-8. Raises FileError."""
        try:
            with self._lock:
                if self._closed:
                    raise FileError("stopped", "the server is stopping")
                process = self._start(limit)
                self._running.add(process)
        except OSError:
            raise FileError("unavailable", "no process can be started that reads PDF files") from None
        try:
            text, _ = process.communicate(data, self.timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise FileError("timeout", f"its text could not be read within {self.timeout:g} seconds") from None
        finally:
            with self._lock:
                self._running.discard(process)
        return self._judged(process.returncode, text)

    def close(self) -> None:
        """Ends what still runs, and reads nothing more."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()

    def _start(self, limit: int) -> subprocess.Popen[bytes]:
        # -P: modules beside the file that is run must not stand in for those of libraries.
        command = [sys.executable, "-P", str(Path(pdf_worker.__file__)), str(limit)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

    def _judged(self, status: int, text: bytes) -> str:
        if status == pdf_worker.DONE:
            found = text.decode("utf-8")
            if not found.strip():
                raise FileError("no_text", "its pages hold no text; scanned pages are not read")
            return found
        if self._closed:
            raise FileError("stopped", "the server is stopping")
        if status == pdf_worker.UNAVAILABLE:
            raise FileError("unavailable", "what reads PDF files is not installed here")
        if status == pdf_worker.ENCRYPTED:
            raise FileError("invalid", "it is encrypted; send it without a password")
        if status == pdf_worker.TOO_LONG:
            raise FileError("text_too_long", "it has too much text")
        # Also a process that crashed: pdfium could not cope with the document.
        raise FileError("invalid", "it is not a PDF file that can be read")
