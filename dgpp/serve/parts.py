"""The events of one choice as the parts of an answer: a stretch of thinking, a stretch of text, or a tool call.

Chat completions have one text and one list of calls. The Responses and the Messages API have a list in which thinking,
text and calls follow each other as they were generated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from dgpp.text.events import (
    CallArguments,
    CallClosed,
    CallOpened,
    Event,
    Field,
    Finished,
    LogprobDelta,
    LogprobEntry,
    StopHit,
    TextDelta,
)

PartKind = Literal["reasoning", "text", "function", "custom"]


@dataclass(frozen=True)
class PartOpened:
    """The part with this number, from 0, begins; those before it are closed. Calls have a name and their number among
    the calls."""

    part: int
    kind: PartKind
    name: str = ""
    call: int = 0


@dataclass(frozen=True)
class PartText:
    """More text of the open part, and the tokens that have become visible with it."""

    text: str
    entries: tuple[LogprobEntry, ...] = ()


@dataclass(frozen=True)
class PartClosed:
    """The open part ends; `complete` is False where the answer was cut off inside it."""

    complete: bool


@dataclass(frozen=True)
class Ended:
    """The last event. `stop` is the stop string that ended the answer."""

    finished: Finished
    stop: str | None


PartEvent = PartOpened | PartText | PartClosed | Ended


@dataclass
class Parts:
    """Turns events into part events.

    White space opens no part: it waits for what follows in its field and goes with it, and is dropped where a part of
    another kind follows or the answer ends. An answer without any part gets an empty text.
    """

    _parts: int = 0
    _open: PartKind | None = None
    _held: list[PartText] = field(default_factory=list)
    _held_field: Field = "content"
    _stop: str | None = None

    def feed(self, events: Iterable[Event]) -> list[PartEvent]:
        """The part events of some more events, in order."""
        out: list[PartEvent] = []
        for event in events:
            match event:
                case TextDelta():
                    self._text(event, out)
                case LogprobDelta():
                    self._entries(event.entries, out)
                case CallOpened():
                    self._begin(event.kind, out, event.name, event.index)
                case CallArguments():
                    out.append(PartText(event.text))
                case CallClosed():
                    self._close(True, out)
                case StopHit():
                    self._stop = event.stop
                case Finished():
                    self._finish(event, out)
        return out

    def _text(self, delta: TextDelta, out: list[PartEvent]) -> None:
        kind: PartKind = "text" if delta.field == "content" else "reasoning"
        if self._open == kind:
            out.append(PartText(delta.text))
            return
        if delta.field != self._held_field:
            self._held, self._held_field = [], delta.field
        self._held.append(PartText(delta.text))
        if not delta.text.isspace():
            self._begin_with_held(kind, out)

    def _entries(self, entries: tuple[LogprobEntry, ...], out: list[PartEvent]) -> None:
        """Puts entries with the content that shows them."""
        pending: list[PartText] | list[PartEvent] = out if self._open == "text" else self._held
        last = pending[-1] if pending else None
        if isinstance(last, PartText):
            pending[-1] = replace(last, entries=last.entries + entries)
        elif self._open == "text":
            out.append(PartText("", entries))

    def _begin(self, kind: PartKind, out: list[PartEvent], name: str = "", call: int = 0) -> None:
        self._held = []
        self._close(self._open in ("reasoning", "text"), out)
        out.append(PartOpened(self._parts, kind, name, call))
        self._parts += 1
        self._open = kind

    def _begin_with_held(self, kind: PartKind, out: list[PartEvent]) -> None:
        held = self._held
        self._begin(kind, out)
        joined = "".join(part.text for part in held)
        out.append(PartText(joined, tuple(entry for part in held for entry in part.entries)))

    def _close(self, complete: bool, out: list[PartEvent]) -> None:
        if self._open is not None:
            out.append(PartClosed(complete))
            self._open = None

    def _finish(self, finished: Finished, out: list[PartEvent]) -> None:
        if not self._parts:
            self._held = self._held if self._held_field == "content" else []
            self._begin_with_held("text", out)
        self._close(finished.reason != "length" and self._open in ("reasoning", "text"), out)
        out.append(Ended(finished, self._stop))
