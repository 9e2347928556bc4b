"""Finding the tool calls in generated text.

Text is content until a block opens. A block is read by the coroutine of its format. One that is well formed becomes
the events of its calls; any other is content, all of it, with the event Malformed before it (spec/api.md §7.4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dgpp.text.detokenize import Piece
from dgpp.text.events import CallArguments, CallEvent, Malformed
from dgpp.text.pieces import split
from dgpp.text.tools.calls import CallWriter
from dgpp.text.tools.cursor import Cursor, Interrupted, MalformedBlock, Wait
from dgpp.text.tools.declared import Tool
from dgpp.text.tools.hold import Ends
from dgpp.text.tools.marks import Marks

Read = Callable[[Cursor, CallWriter], Wait[None]]
"""Reads one block from its opener on. Raises MalformedBlock; Interrupted when another block begins at the cursor."""

Output = list[Piece | CallEvent]

_NO_TOKEN = (-1,)  # of text that is put in, and never shown


class BlockParser:
    """The calls of one answer.

    With `streams` the events of a call come while it is read; a call whose block then breaks off stays incomplete.
    Without, they come when its block is complete.
    """

    def __init__(self, opener: str, read: Read, marks: Marks, tools: Sequence[Tool], *, streams: bool) -> None:
        """`opener` is the text that begins a block, its control tokens as marks."""
        self.markers: frozenset[int] = marks.ids
        """Control tokens that are syntax here."""
        self._opener = Ends([opener])
        self._first = opener[0]
        self._size = len(opener)
        # What is left of an opener that begins an answer, where its first character still counted as thinking.
        self._cut = opener[1:]
        self._is_fresh = True
        self._read = read
        self._marks = marks
        self._tools = {tool.name: tool for tool in tools}
        self._streams = streams
        self._index = 0
        self._pieces: list[Piece] = []  # not decided yet, or those of the block; control tokens as marks
        self._block: _Block | None = None
        self._ended = False

    def feed(self, piece: Piece, marker: bool = False) -> Output:
        """What one more piece makes certain: visible content and the events of calls. `marker` says that the piece is
        one control token of `markers`."""
        if marker:
            piece = self._marks.marked(piece)
            if self._is_fresh and piece.text == self._cut:
                self._pieces.append(Piece(self._first, _NO_TOKEN))
        elif self._block is None and not self._pieces and self._first not in piece.text:
            self._is_fresh = False
            return [piece]
        self._is_fresh = False
        self._pieces.append(piece)
        if self._block is not None:
            self._block.cursor.add(piece.text)
        return self._decide()

    def finish(self) -> Output:
        """What is left when nothing will follow. A block that is still open is content, or an incomplete call."""
        self._ended = True
        if self._block is not None:
            self._block.cursor.end()
        out = self._decide()
        self._show(self._pieces, out)
        self._pieces = []
        return out

    def _decide(self) -> Output:
        out: Output = []
        while self._scan(out) if self._block is None else self._resume(self._block, out):
            pass
        return _joined(out)

    def _scan(self, out: Output) -> bool:
        """Shows content up to the next block, or all that cannot belong to one; whether a block opened."""
        text = "".join(piece.text for piece in self._pieces)
        found = self._opener.find(text)
        shown, self._pieces = split(self._pieces, found.start() if found else len(text) - self._opener.held(text))
        self._show(shown, out)
        if found:
            self._open()
        return found is not None

    def _open(self) -> None:
        """Begins a block at the first of the pieces."""
        self._block = _Block(Cursor(self._marks.spelling), self._read, self._tools, self._index)
        self._block.cursor.add("".join(piece.text for piece in self._pieces))
        if self._ended:
            self._block.cursor.end()

    def _resume(self, block: _Block, out: Output) -> bool:
        """Reads on in the block; whether it came to its end, good or bad."""
        failure: Exception | None = None
        try:
            next(block.reader)
        except (MalformedBlock, Interrupted) as error:
            failure = error
        except StopIteration:
            self._block = None
        if self._streams or self._block is None:
            out += block.release()
        if self._block is None:
            self._index = block.writer.index
            self._pieces = split(self._pieces, block.cursor.position)[1]
            return True
        if failure is not None:
            self._block = None
            self._fail(block, failure, out)
        return failure is not None

    def _fail(self, block: _Block, failure: Exception, out: Output) -> None:
        """Shows what the events of a broken block do not say, and goes on after its opener: a good block may follow
        within what was read of it."""
        interrupted = isinstance(failure, Interrupted)
        content = block.cursor.position if interrupted else self._size
        if block.is_released:
            self._index = block.writer.index + block.writer.is_open
            if self._ended and not interrupted:
                self._pieces = []  # cut off: an incomplete call is nothing wrong
                return
            self._pieces = split(self._pieces, block.shown)[1]
            content = max(0, content - block.shown)
        out.append(Malformed(str(failure)))
        shown, self._pieces = split(self._pieces, content)
        self._show(shown, out)
        if interrupted:
            self._open()

    def _show(self, pieces: Sequence[Piece], out: Output) -> None:
        out += [self._marks.spelled(piece) for piece in pieces if piece.tokens != _NO_TOKEN]


class _Block:
    """A block that is being read."""

    def __init__(self, cursor: Cursor, read: Read, tools: Mapping[str, Tool], index: int) -> None:
        self.cursor = cursor
        self.writer = CallWriter(tools, self._emit, index)
        self.reader = read(cursor, self.writer)
        self.is_released = False
        """Whether events of it were given out."""
        self.shown = 0
        """The characters that its events stand for."""
        self._events: list[CallEvent] = []

    def release(self) -> list[CallEvent]:
        """The events since the last release."""
        events, self._events = self._events, []
        self.is_released |= bool(events)
        return events

    def _emit(self, event: CallEvent) -> None:
        self.shown = self.cursor.position
        self._events.append(event)


def _joined(out: Output) -> Output:
    """`out` with the arguments that follow each other as one event."""
    joined: Output = []
    for item in out:
        last = joined[-1] if joined else None
        if isinstance(item, CallArguments) and isinstance(last, CallArguments) and last.index == item.index:
            joined[-1] = CallArguments(item.index, last.text + item.text)
        else:
            joined.append(item)
    return joined
