"""The process that reads one PDF: the document on standard input, its text on standard output.

It is run as a file, in a process of its own, because pdfium is native code: a document can crash it, keep it busy or
make it ask for memory, and it serves one thread at a time. The exit status says how it went.
"""

from __future__ import annotations

import resource
import sys

MEMORY_BYTES = 4 * 1024**3
"""The most address space that reading a document may take."""

DONE, MALFORMED, ENCRYPTED, TOO_LONG, UNAVAILABLE = 0, 10, 11, 12, 13
"""Exit statuses. UNAVAILABLE: no document can be read here."""

_PASSWORD_ERROR = 4  # pdfium's FPDF_ERR_PASSWORD
_CONTROLS = dict.fromkeys((*range(9), *range(11, 32), 127, 65534, 65535))


def extract(data: bytes, limit: int) -> tuple[int, bytes]:
    """(status, text in UTF-8): the pages in order with a blank line between them. More than `limit` bytes are
    TOO_LONG."""
    import pypdfium2  # type: ignore[import-untyped]  # only this process loads the native library

    pages: list[bytes] = []
    size = 0
    try:
        with pypdfium2.PdfDocument(data) as document:
            for index in range(len(document)):
                text = document[index].get_textpage().get_text_bounded()
                page = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS).strip().encode()
                size += len(page) + 2 * bool(pages)
                if size > limit:
                    return TOO_LONG, b""
                pages.append(page)
    except pypdfium2.PdfiumError as error:
        return (ENCRYPTED if error.err_code == _PASSWORD_ERROR else MALFORMED), b""
    return DONE, b"\n\n".join(pages)


def main() -> int:
    """Reads the document; the argument is the limit."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        status, text = extract(sys.stdin.buffer.read(), int(sys.argv[1]))
    except (ImportError, OSError):  # OSError: the native library is there but cannot be loaded
        return UNAVAILABLE
    sys.stdout.buffer.write(text)
    return status


if __name__ == "__main__":
    sys.exit(main())
