"""The kept files: their bytes and what is known of each, in one directory (spec/api.md §9)."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dgpp.serve.errors import ApiError
from dgpp.serve.files.errors import STORAGE_FULL, not_found, not_stored

logger = logging.getLogger(__name__)

PURPOSES = ("user_data", "assistants")
_ID = re.compile(r"file-[0-9a-f]{32}")
_METADATA = ".json"
_UNFINISHED = ".part"


@dataclass(frozen=True)
class StoredFile:
    """What is known of a kept file."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str

    def object(self) -> dict[str, Any]:
        """The file object of the API."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


class Shelf:
    """Files in a directory of at most `capacity` bytes together. From any thread.

    Without a `directory` they lie in a temporary one, made for the first of them and removed by `close` or at the end
    of the process. A named one is made when it is missing, and keeps its files. Each is written under another name and
    then renamed, first its bytes and then what is known of it, so that a file is there in full or not at all.

    Raises ValueError for a directory that cannot be used.
    """

    def __init__(self, directory: str | None, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._files: dict[str, StoredFile] = {}
        self._used = 0  # bytes of the files, and of those being written
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._directory = None if directory is None else Path(directory)
        if self._directory is not None:
            self._files = _opened(self._directory)
            self._used = sum(file.bytes for file in self._files.values())

    def add(self, filename: str, purpose: str, data: bytes) -> StoredFile:
        """Keeps a file. Raises ApiError."""
        file = StoredFile(f"file-{secrets.token_hex(16)}", len(data), int(time.time()), filename, purpose)
        with self._lock:
            if self._used + file.bytes > self._capacity:
                message = f"The kept files would have more than max_file_storage_bytes ({self._capacity}); delete some."
                raise ApiError(STORAGE_FULL, message, "file")
            self._used += file.bytes
        try:
            self._write(file, data)
        except OSError as error:
            with self._lock:
                self._used -= file.bytes
            raise self._failed(error) from None
        with self._lock:
            self._files[file.id] = file
        return file

    def all(self) -> list[StoredFile]:
        """The files, in the order in which they came."""
        with self._lock:
            return sorted(self._files.values(), key=lambda file: file.created_at)

    def get(self, id: str, param: str | None = None) -> StoredFile:
        """The file with this id. Raises ApiError, about `param`."""
        with self._lock:
            file = self._files.get(id)
        if file is None:
            raise not_found(id, param)
        return file

    def read(self, id: str, param: str | None = None) -> bytes:
        """The bytes of a file. Raises ApiError, about `param`."""
        self.get(id, param)
        try:
            return (self._place() / id).read_bytes()
        except FileNotFoundError:
            raise not_found(id, param) from None  # deleted just now
        except OSError as error:
            raise self._failed(error) from None

    def delete(self, id: str) -> None:
        """Removes a file. Raises ApiError."""
        with self._lock:
            file = self._files.pop(id, None)
        if file is None:
            raise not_found(id)
        try:
            # What is known of it goes first: bytes alone are swept up at the next start.
            for name in (id + _METADATA, id):
                (self._place() / name).unlink(missing_ok=True)
        except OSError as error:
            with self._lock:
                self._files[id] = file
            raise self._failed(error) from None
        with self._lock:
            self._used -= file.bytes

    def close(self) -> None:
        """Removes a temporary directory."""
        with self._lock:
            temporary, self._temporary = self._temporary, None
            if temporary is not None:
                self._files, self._used = {}, 0
                temporary.cleanup()

    def _place(self) -> Path:
        if self._directory is not None:
            return self._directory
        with self._lock:
            if self._temporary is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="dgpp-files-")
            return Path(self._temporary.name)

    def _write(self, file: StoredFile, data: bytes) -> None:
        place = self._place() / file.id
        try:
            _write(place, data)
            _write(place.with_name(file.id + _METADATA), json.dumps(asdict(file), ensure_ascii=False).encode())
        except OSError:
            place.unlink(missing_ok=True)
            raise

    def _failed(self, error: OSError) -> ApiError:
        logger.error("the kept files cannot be reached: %s", error)
        return not_stored()


def _opened(directory: Path) -> dict[str, StoredFile]:
    """The files that lie in a directory, by id; what a stopped process left half done is removed.

    Raises ValueError naming what is wrong.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(directory / "writable", b"")
        (directory / "writable").unlink()
        files = {}
        for path in sorted(directory.glob(f"file-*{_METADATA}")):
            file = _known(path)
            files[file.id] = file
        for path in directory.glob("file-*"):
            unfinished = path.name.endswith(_UNFINISHED) or (_ID.fullmatch(path.name) and path.name not in files)
            if unfinished:
                path.unlink()
    except OSError as error:
        raise ValueError(f"files directory {str(directory)!r} cannot be used: {error.strerror}") from None
    return files


def _known(path: Path) -> StoredFile:
    """What a metadata file says, which must be true of the bytes beside it."""
    try:
        file = StoredFile(**json.loads(path.read_bytes()))
        usable = _ID.fullmatch(file.id) and path.name == file.id + _METADATA and file.purpose in PURPOSES
        usable = usable and isinstance(file.filename, str) and isinstance(file.created_at, int)
        content = path.with_suffix("")
        if not usable or content.is_symlink() or content.stat().st_size != file.bytes:
            raise ValueError
    except (ValueError, TypeError, FileNotFoundError):
        raise ValueError(f"files directory: {str(path)!r} does not describe a file beside it; remove it") from None
    return file


def _write(path: Path, data: bytes) -> None:
    """Writes a file so that it is there in full or not at all."""
    unfinished = path.with_name(path.name + _UNFINISHED)
    try:
        with open(unfinished, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
