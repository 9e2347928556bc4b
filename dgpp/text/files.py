"""Files as text that a model can read (spec/api.md §9)."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from dgpp.text.file_error import FileError
from dgpp.text.pdf import MAGIC, PdfReader

SUFFIXES = frozenset(
    (
        *(".txt", ".md", ".markdown", ".json", ".jsonl", ".csv", ".tsv", ".html", ".xml", ".yaml", ".yml", ".log"),
        *(".py", ".js", ".ts", ".tsx", ".jsx", ".c", ".cpp", ".h", ".hpp", ".rs", ".go", ".sh", ".sql", ".toml"),
        ".ini",
    )
)
"""Endings of the names of files that are taken as text."""


def file_text(name: str | None, data: bytes, pdf: PdfReader, limit: int) -> str:
    """The text of a file, at most `limit` bytes of UTF-8: a PDF by its first bytes, any other by the ending of its
    name. Raises FileError."""
    if data.startswith(MAGIC):
        return pdf.text(data, limit)
    suffix = PurePosixPath(name or "").suffix.lower()
    if suffix not in SUFFIXES:
        endings = " ".join(sorted(SUFFIXES))
        raise FileError("name", f"it is no PDF, and its name must have one of the endings {endings}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError("invalid", f"it is not UTF-8 at byte {error.start}") from None
    if "\0" in text:
        raise FileError("invalid", "it holds a NUL character, which no text does")
    if len(data) > limit:
        raise FileError("text_too_long", "it has too much text")
    return text


def framed(name: str | None, text: str) -> str:
    """The text of a file as part of a message: under a header with its name, and with an end."""
    title = json.dumps(name or "document.pdf", ensure_ascii=False)
    return f"[file {title}]\n{text.rstrip()}\n[end of file {title}]\n"
