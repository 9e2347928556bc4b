"""The ways in which a file can be unreadable."""

from __future__ import annotations

from typing import Literal

FileFault = Literal["invalid", "name", "no_text", "text_too_long", "timeout", "unavailable", "stopped"]


class FileError(ValueError):
    """A file that gives no text. `message` continues a sentence about the file; `fault` says what kind of fault it is:
    `name` where only another file name would help."""

    def __init__(self, fault: FileFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message
