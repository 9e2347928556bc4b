"""Parallel reads from a checkpoint's files straight into memory, with the page cache dropped behind them.

A few threads call `preadv` on pieces of tensors, so a large tensor is read by several threads and the bytes land where
they stay. Every piece is then dropped from the page cache: on a machine with unified memory a cached copy of the file
takes the room of the weights. (Reads past the cache would need aligned offsets, which published tensors do not have.)
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from dgpp.checkpoint.errors import CheckpointError

READERS = 4
PIECE = 16 << 20
"""Bytes of the largest read of one thread."""

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@dataclass(frozen=True)
class Piece:
    """`len(target)` bytes of a file from `offset`, part of the tensor `name`."""

    path: Path
    offset: int
    target: memoryview
    name: str


def pieces(path: Path, offset: int, target: memoryview, name: str) -> Iterable[Piece]:
    """A tensor's bytes in pieces of at most `PIECE`; none for an empty tensor."""
    for start in range(0, len(target), PIECE):
        yield Piece(path, offset + start, target[start : start + PIECE], name)


def read_piece(file: int, piece: Piece) -> CheckpointError | None:
    """Fills the piece from an open file; what went wrong is returned, since a raised error keeps its frames' memory."""
    place, left = piece.offset, piece.target
    try:
        while left:
            count = os.preadv(file, [left], place)
            if count == 0:
                return CheckpointError(f"{piece.path}: ends inside tensor {piece.name!r}; download it again")
            place, left = place + count, left[count:]
        drop_cached(file, piece.offset, len(piece.target))
    except OSError as error:
        return unreadable(piece.path, error)
    return None


def drop_cached(file: int, offset: int, count: int) -> None:
    """Asks the system to forget the cached pages of these bytes of a file. Costs a re-read, never data."""
    if hasattr(os, "posix_fadvise"):
        start = offset - offset % PAGE
        os.posix_fadvise(file, start, -(-(offset + count) // PAGE) * PAGE - start, os.POSIX_FADV_DONTNEED)


def unreadable(path: Path, error: OSError) -> CheckpointError:
    """The error for a file that the system cannot read."""
    return CheckpointError(f"{path}: cannot be read: {error.strerror}; check the disk, or download it again")


class Readers:
    """Threads that read pieces, as a context manager. At its end no thread runs, no file is open, no piece is kept.

    `submit` opens a file with its first piece; `next` closes it after its last, so files should come one by one.
    """

    def __init__(self, files: Mapping[Path, int], threads: int = READERS) -> None:
        """`files` are the bytes that will be submitted of each file."""
        self._left = dict(files)
        self._open: dict[Path, int] = {}
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(threads, "dgpp-reader")
        self._running: dict[Future[CheckpointError | None], Piece] = {}
        self._finished: deque[tuple[Piece, CheckpointError | None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)
        self._running.clear()
        self._finished.clear()
        for file in self._open.values():
            os.close(file)
        self._open.clear()

    @property
    def pending(self) -> int:
        """Pieces that were submitted and not yet returned by `next`."""
        return len(self._running) + len(self._finished)

    def submit(self, piece: Piece) -> None:
        """Has a piece read. Raises CheckpointError when its file cannot be opened."""
        if piece.path not in self._open:
            try:
                self._open[piece.path] = os.open(piece.path, os.O_RDONLY)
            except OSError as error:
                raise unreadable(piece.path, error) from None
        self._running[self._pool.submit(self._read, self._open[piece.path], piece)] = piece

    def next(self) -> Piece:
        """The next piece that was read. Raises CheckpointError naming the file and, where it ends early, the tensor."""
        if not self._finished:
            done, _ = wait(self._running, return_when=FIRST_COMPLETED)
            self._finished.extend((self._running.pop(future), future.result()) for future in done)
        piece, problem = self._finished.popleft()
        if problem is not None:
            raise problem
        self._left[piece.path] -= len(piece.target)
        if not self._left[piece.path]:
            os.close(self._open.pop(piece.path))
        return piece

    def _read(self, file: int, piece: Piece) -> CheckpointError | None:
        return None if self._stopped.is_set() else read_piece(file, piece)
