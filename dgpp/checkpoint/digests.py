"""SHA-256 of every file of a model: two downloads of one name need not be the same model.

The hub's cache names the files it tracks by their SHA-256, so a file that is a link into it can be held against its
name. Reading goes on several threads, and drops the page cache behind it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reading import drop_cached, unreadable

logger = logging.getLogger(__name__)

CHUNK = 8 << 20
THREADS = 4
BLOB = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FileDigest:
    """A file's name in the model's directory, its bytes, its SHA-256, and the one that the hub's cache names it by."""

    name: str
    nbytes: int
    sha256: str
    published: str | None = None

    @property
    def damaged(self) -> bool:
        """Whether the file is not the one that was published under its name."""
        return self.published is not None and self.published != self.sha256


def model_files(directory: Path) -> list[Path]:
    """The files of a model's directory, by name."""
    return sorted(path for path in directory.iterdir() if path.is_file() and not path.name.startswith("."))


def digest_files(
    paths: Sequence[Path], progress: Callable[[int, int], None] | None = None, threads: int = THREADS
) -> list[FileDigest]:
    """The digests of files, in their order. `progress` is called, by any thread, with the bytes done and in all.

    Raises CheckpointError naming a file that cannot be read.
    """
    sizes = {path: path.stat().st_size for path in paths}
    total, done, lock = sum(sizes.values()), 0, threading.Lock()

    def count(nbytes: int) -> None:
        nonlocal done
        with lock:
            done += nbytes
            if progress is not None:
                progress(done, total)

    with ThreadPoolExecutor(threads) as pool:
        # The largest first, so that none is left to one thread at the end.
        order = sorted(paths, key=lambda path: -sizes[path])
        found = dict(zip(order, pool.map(lambda path: _digest(path, count), order), strict=True))
    return [found[path] for path in paths]


def model_digest(digests: Sequence[FileDigest]) -> str:
    """One SHA-256 for all files: that of the lines "<sha256>  <name>", by name, as `sha256sum` prints them."""
    lines = {digest.name: f"{digest.sha256}  {digest.name}\n" for digest in digests}
    return hashlib.sha256("".join(lines[name] for name in sorted(lines)).encode()).hexdigest()


class _ClosedError(Exception):
    """The digests are not wanted any more."""


class BackgroundDigests:
    """The digests of a model's files, taken by a thread of its own while the model is at work.

    `report()` says how far it is: "state" is "computing", "ready" or "failed"; "files" are the digests so far by name,
    and "model" is the one of all, when they are there. Every digest is logged as it is found. A file whose name in the
    hub's cache promises another digest than it has is logged as an error and listed under "damaged".
    """

    def __init__(self, directory: Path) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._report: dict[str, Any] = {"state": "computing", "model": None, "files": {}, "damaged": []}
        self._thread = threading.Thread(target=self._run, args=(directory,), name="dgpp-digests", daemon=True)
        self._thread.start()

    def report(self) -> dict[str, Any]:
        """A copy of what is known by now."""
        with self._lock:
            return {**self._report, "files": dict(self._report["files"]), "damaged": list(self._report["damaged"])}

    def wait(self, timeout: float | None = None) -> None:
        """Returns when all files are read, or after `timeout` seconds."""
        self._thread.join(timeout)

    def close(self) -> None:
        """Ends the reading, within a file too."""
        self._closed = True
        self._thread.join()

    def _run(self, directory: Path) -> None:
        found: list[FileDigest] = []
        try:
            for path in model_files(directory):
                found.append(_digest(path, self._go_on))
                self._add(found[-1])
        except _ClosedError:
            return
        except (CheckpointError, OSError) as error:
            logger.error("digests of %s: %s", directory, error)
            with self._lock:
                self._report |= {"state": "failed", "error": str(error)}
            return
        with self._lock:
            self._report |= {"state": "ready", "model": model_digest(found)}
        logger.info("model digest %s", self._report["model"])

    def _go_on(self, nbytes: int) -> None:
        if self._closed:
            raise _ClosedError

    def _add(self, digest: FileDigest) -> None:
        if digest.damaged:
            logger.error("%s has SHA-256 %s, published is %s", digest.name, digest.sha256, digest.published)
        else:
            logger.info("%s  %s", digest.sha256, digest.name)
        with self._lock:
            self._report["files"][digest.name] = digest.sha256
            if digest.damaged:
                self._report["damaged"].append(digest.name)


def differing(ours: Sequence[FileDigest], theirs: Mapping[str, str]) -> list[str]:
    """The names of files whose digest is another one in `theirs` (SHA-256 by name), or that only one side has."""
    mine = {digest.name: digest.sha256 for digest in ours}
    return sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))


def _digest(path: Path, count: Callable[[int], None]) -> FileDigest:
    """The digest of a file; `count` is called with the bytes of every chunk once it is done."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(CHUNK))
    try:
        position = 0
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                digest.update(buffer[:size])
                drop_cached(file.fileno(), position, size)
                position += size
                count(size)
    except OSError as error:
        raise unreadable(path, error) from error
    return FileDigest(path.name, position, digest.hexdigest(), _published(path))


def _published(path: Path) -> str | None:
    """The digest that a link into the hub's cache promises."""
    name = Path(os.readlink(path)).name if path.is_symlink() else ""
    return name if BLOB.fullmatch(name) else None


def read_sums(path: Path) -> dict[str, str]:
    """The SHA-256 by name in a file as `sha256sum` writes it. Raises CheckpointError naming the line that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise unreadable(path, error) from error
    found = {}
    for number, line in enumerate(lines, 1):
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
        if match is None:
            raise CheckpointError(f"{path}: line {number} is not a SHA-256, two blanks and a file's name")
        found[match[2]] = match[1]
    return found
