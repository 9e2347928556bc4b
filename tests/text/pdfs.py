"""Small PDF files, written out."""

from __future__ import annotations

from collections.abc import Sequence


def pdf(pages: Sequence[str], *, encrypted: bool = False) -> bytes:
    """A PDF whose pages show these lines of ASCII text; an encrypted one opens with no password."""
    count = len(pages)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>"
        % (count, b" ".join(b"%d 0 R" % (4 + 2 * at) for at in range(count))),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, text in enumerate(pages):
        lines = b" ".join(b"(%s) Tj 0 -20 Td" % line.encode("ascii") for line in text.split("\n"))
        stream = b"BT /F1 12 Tf 40 700 Td %s ET" % lines
        fonts = b"<< /Font << /F1 3 0 R >> >>"
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources %s /Contents %d 0 R >>"
            % (fonts, 5 + 2 * at)
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
    written = bytearray(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(written)
    written += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    written += b"".join(b"%010d 00000 n \n" % place for place in places)
    lock = b""
    if encrypted:
        secret = b"<" + b"5a" * 32 + b">"
        lock = b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O %s /U %s >> /ID [<00> <00>]" % (secret, secret)
    written += b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, lock, start)
    return bytes(written)
