"""Reading a block of markup that arrives in parts.

A reader of a block is a coroutine: it asks the cursor for what the grammar expects next, and is suspended where the
text that decides is not there yet. What it does therefore depends on the text alone and never on how it was cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Mapping
from typing import TypeVar

from dgpp.text.tools.hold import Ends

T = TypeVar("T")
Wait = Generator[None, None, T]
"""A coroutine that yields whenever it needs more text, and returns a T."""


_NAME = 256  # characters that a name may have


class MalformedBlock(Exception):
    """The block does not follow its grammar; the text says where."""


class Interrupted(Exception):
    """Another block begins at the cursor, so the one that is being read will not be finished."""


class Cursor:
    """The text of a block, read from its start. Control tokens in it are private characters, which `spelling` undoes
    in everything that is handed out as data."""

    def __init__(self, spelling: Mapping[int, str] | None = None) -> None:
        self.position = 0
        """Characters read so far."""
        self._text = ""
        self._at = 0  # of the first unread character in it
        self._spelling = dict(spelling or {})
        self._ended = False
        self._saved: list[str] | None = None

    def add(self, text: str) -> None:
        """More text."""
        self._text = self._text[self._at :] + text
        self._at = 0

    def end(self) -> None:
        """No text will follow."""
        self._ended = True

    @property
    def ended(self) -> bool:
        """Whether all text was read and none will follow."""
        return self._ended and self._at == len(self._text)

    def more(self) -> Wait[None]:
        """Waits for more text. Raises MalformedBlock when none will come."""
        if self._ended:
            raise MalformedBlock("the answer ended inside a tool call")
        yield

    def peek(self) -> Wait[str]:
        """The next character, unread; empty at the end of all text."""
        return (yield from self.look(1))

    def skip(self, characters: str, most: int | None = None) -> Wait[int]:
        """How many of the next characters are among these; they are read, at most `most` of them."""
        count = 0
        while count != most and (next := (yield from self.peek())) and next in characters:
            self._take(1)
            count += 1
        return count

    def run(self, pattern: re.Pattern[str]) -> str:
        """What `pattern` matches of the text that is there; it may go on in text to come."""
        found = pattern.match(self._text, self._at)
        return self._data(self._take(found.end() - self._at)) if found else ""

    def literal(self, *options: str) -> Wait[str]:
        """Reads one of these texts, of which none begins another. Raises MalformedBlock when none of them is next."""
        return self._take(len((yield from self.upcoming(options))))

    def upcoming(self, options: Collection[str]) -> Wait[str]:
        """Which of these texts is next; it stays unread. Raises MalformedBlock when none of them is."""
        while True:
            for option in options:
                if self._text.startswith(option, self._at):
                    return option
            rest = self._text[self._at :]
            if not any(option.startswith(rest) for option in options):
                raise MalformedBlock(f"expected {' or '.join(repr(self._data(option)) for option in sorted(options))}")
            yield from self.more()

    def until(self, ends: Ends, show: Callable[[str], None]) -> Wait[str]:
        """The first of `ends`, still unread. `show` gets the text before it, as soon as it is certain."""
        while True:
            found = ends.find(self._text, self._at)
            end = found.start() if found else len(self._text) - ends.held(self._text, self._at)
            if size := end - self._at:
                show(self._data(self._take(size)))
            if found:
                return found.group()
            yield from self.more()

    def name(self, ends: Ends) -> Wait[tuple[str, str]]:
        """The text before the first of `ends`, and this end, both read. Raises MalformedBlock for a text that is long
        or has several lines."""
        name = ""

        def show(text: str) -> None:
            nonlocal name
            name += text
            if "\n" in name or len(name) > _NAME:
                start = name.partition("\n")[0][:_NAME]
                raise MalformedBlock(f"a name of one line has to follow instead of {start!r}")

        end = yield from self.until(ends, show)
        return name, (yield from self.literal(end))

    def look(self, size: int) -> Wait[str]:
        """The next `size` characters, unread; fewer where the text ends."""
        while len(self._text) < self._at + size and not self._ended:
            yield
        return self._text[self._at : self._at + size]

    def take(self, size: int) -> Wait[str]:
        """Reads the next `size` characters."""
        while len(self._text) < self._at + size:
            yield from self.more()
        return self._take(size)

    def save(self) -> None:
        """Remembers this place."""
        self._saved = []

    def unsave(self) -> str:
        """The text that was read since `save`, which is forgotten."""
        text, self._saved = "".join(self._saved or ()), None
        return self._data(text)

    def restore(self) -> None:
        """Goes back to where `save` was called, which is forgotten."""
        text, self._saved = "".join(self._saved or ()), None
        self._text = text + self._text[self._at :]
        self._at = 0
        self.position -= len(text)

    def _take(self, size: int) -> str:
        taken = self._text[self._at : self._at + size]
        self._at += size
        self.position += size
        if self._saved is not None:
            self._saved.append(taken)
        return taken

    def _data(self, text: str) -> str:
        return text.translate(self._spelling) if self._spelling else text
