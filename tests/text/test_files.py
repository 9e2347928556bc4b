"""Files as text: PDFs read in processes of their own, text files by their names."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dgpp.text import pdf_worker
from dgpp.text.file_error import FileError
from dgpp.text.files import SUFFIXES, file_text, framed
from dgpp.text.pdf import PdfReader
from tests.text.pdfs import pdf

ANY = 10**6


@pytest.fixture
def reader() -> Iterator[PdfReader]:
    made = PdfReader(60)
    yield made
    made.close()


def fault(reader: PdfReader, name: str | None, data: bytes, limit: int = ANY) -> tuple[str, str]:
    with pytest.raises(FileError) as caught:
        file_text(name, data, reader, limit)
    return caught.value.fault, caught.value.message


def test_api_9_pages_of_a_pdf(reader: PdfReader) -> None:
    document = pdf(["One line\nand another", "", "Last page"])
    assert file_text(None, document, reader, ANY) == "One line\nand another\n\n\n\nLast page"
    # What it is called does not matter.
    assert "Last page" in file_text("x.exe", document, reader, ANY)


def test_api_9_text_limit_of_a_pdf(reader: PdfReader) -> None:
    document = pdf(["abc", "de"])  # five letters and a blank line between the pages
    assert file_text(None, document, reader, 7) == "abc\n\nde"
    assert fault(reader, None, document, 6)[0] == "text_too_long"


@pytest.mark.parametrize("data", [b"%PDF-", b"%PDF-1.4\nnot one", pdf(["abc"])[:200], b"%PDF-1.7\n" + bytes(1000)])
def test_api_9_malformed_pdf(reader: PdfReader, data: bytes) -> None:
    assert fault(reader, "a.pdf", data) == ("invalid", "it is not a PDF file that can be read")


def test_api_9_encrypted_pdf(reader: PdfReader) -> None:
    found, message = fault(reader, "a.pdf", pdf(["abc"], encrypted=True))
    assert found == "invalid"
    assert "encrypted" in message


def test_api_9_scanned_pdf(reader: PdfReader) -> None:
    found, message = fault(reader, "a.pdf", pdf(["", " "]))
    assert found == "no_text"
    assert "scanned" in message


def replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """Lets another script read the PDFs."""
    path = tmp_path / "worker.py"
    path.write_text(script)
    monkeypatch.setattr(pdf_worker, "__file__", str(path))


def test_a_pdf_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, tmp_path, "import time\ntime.sleep(60)")
    started = time.monotonic()
    found, message = fault(PdfReader(0.3), None, pdf(["abc"]))
    assert time.monotonic() - started < 30
    assert (found, "0.3 seconds" in message) == ("timeout", True)


def test_a_pdf_that_crashes_the_reader(reader: PdfReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, tmp_path, f"import os\nos.kill(os.getpid(), {signal.SIGSEGV:d})")
    assert fault(reader, None, pdf(["abc"]))[0] == "invalid"


def test_a_reader_that_is_not_there(reader: PdfReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Path(pdf_worker.__file__).read_text()
    replaced(monkeypatch, tmp_path, worker.replace("import pypdfium2", "import there_is_no_such_module"))
    assert fault(reader, None, pdf(["abc"]))[0] == "unavailable"
    monkeypatch.setattr("sys.executable", str(tmp_path / "nothing"))
    assert fault(reader, None, pdf(["abc"]))[0] == "unavailable"


def test_closing_ends_what_is_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, tmp_path, "import time\ntime.sleep(60)")
    reader, found = PdfReader(60), []
    thread = threading.Thread(target=lambda: found.append(fault(reader, None, pdf(["abc"]))[0]))
    thread.start()
    while not reader._running:
        time.sleep(0.01)
    reader.close()
    thread.join(20)
    assert found == ["stopped"]
    assert fault(reader, None, pdf(["abc"]))[0] == "stopped"


def test_pdfs_are_read_at_the_same_time(reader: PdfReader) -> None:
    found: dict[int, str] = {}

    def read(number: int) -> None:
        found[number] = reader.text(pdf([f"number {number}"]), ANY)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"number {number}" for number in range(4)}


@pytest.mark.parametrize("seed", range(12))
def test_a_broken_pdf_gives_text_or_a_fault(reader: PdfReader, seed: int) -> None:
    chance = random.Random(seed)
    document = bytearray(pdf(["One page", "Another"]))
    for _ in range(chance.randrange(1, 40)):
        document[chance.randrange(5, len(document))] = chance.randrange(256)
    found = "text"
    try:
        reader.text(bytes(document), ANY)
    except FileError as error:
        found = error.fault
    assert found in ("text", "invalid", "no_text")


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_api_9_text_files_by_ending(reader: PdfReader, suffix: str) -> None:
    assert file_text(f"a b{suffix.upper()}", "Grüße\n".encode(), reader, ANY) == "Grüße\n"


@pytest.mark.parametrize("name", [None, "a", "a.exe", "a.txt.gz", ".txt", "txt"])
def test_api_9_other_endings(reader: PdfReader, name: str | None) -> None:
    assert fault(reader, name, b"abc")[0] == "name"


def test_api_9_text_must_be_utf8_without_nul(reader: PdfReader) -> None:
    assert fault(reader, "a.txt", b"ab\xff") == ("invalid", "it is not UTF-8 at byte 2")
    assert fault(reader, "a.txt", b"\xed\xa0\x80")[0] == "invalid"
    assert fault(reader, "a.txt", b"a\0b")[0] == "invalid"
    assert fault(reader, "a.txt", "x".encode("utf-16"))[0] == "invalid"
    assert file_text("a.txt", b"", reader, ANY) == ""


def test_api_9_text_limit_of_a_text_file(reader: PdfReader) -> None:
    text = "aé"
    assert file_text("a.txt", text.encode(), reader, 3) == text
    assert fault(reader, "a.txt", text.encode(), 2)[0] == "text_too_long"


def test_the_frame_names_the_file() -> None:
    assert framed("a.txt", "one\ntwo\n\n") == '[file "a.txt"]\none\ntwo\n[end of file "a.txt"]\n'
    assert framed(None, "x").startswith('[file "document.pdf"]\n')
    # A name cannot end the header that it stands in.
    assert framed('a"]\n[end', "x").splitlines()[0] == r'[file "a\"]\n[end"]'
