"""Generated tokens to events: the one path for streamed and whole answers.

    token -> route (which field, or hidden) -> bytes -> Detokenizer -> StopMatcher (content only) -> events

Each field has its own detokenizer, so a character cut by a change of field stays in its own. Stop strings look at
content alone (spec/api.md §4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from dgpp.text.detokenize import Detokenizer, Piece
from dgpp.text.events import (
    Event,
    Field,
    Finished,
    LogprobDelta,
    LogprobEntry,
    StopHit,
    TextDelta,
    TokenLogprobs,
    TopLogprob,
)
from dgpp.text.stops import StopMatcher

Route = Callable[[int], Field | None]


class Vocabulary(Protocol):
    """What the pipeline asks of a tokenizer."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that text does not show."""

    def token_bytes(self, id: int, *, at_start: bool = False) -> bytes:
        """The bytes that a token adds, in the middle or at the start of a text."""


def hide(ids: frozenset[int]) -> Route:
    """A route that hides `ids` and sends every other token to the content."""
    return lambda token: None if token in ids else "content"


class Pipeline:
    """The events of one answer.

    `eos` ids are hidden like the tokenizer's special tokens. `continues` says that the answer carries on the text of
    the prompt (a completion), so that a leading space is kept where the decoder would drop it at the start of a text.
    `route` replaces the rule that hides special tokens and calls everything else content.
    """

    def __init__(
        self,
        tokenizer: Vocabulary,
        *,
        eos: frozenset[int] = frozenset(),
        stop: Sequence[str] = (),
        continues: bool = False,
        route: Route | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._route = route or hide(tokenizer.special_ids | eos)
        self._stops = StopMatcher(stop)
        self._detokenizers: dict[Field, Detokenizer] = {"content": Detokenizer(), "reasoning": Detokenizer()}
        self._at_start = not continues
        self._tokens = 0
        self._waiting: dict[int, tuple[int, bytes, TokenLogprobs, bool]] = {}  # by position: content not yet visible
        self._visible_bytes = 0

    @property
    def completion_tokens(self) -> int:
        """Tokens fed, up to the one that completed a stop string."""
        return self._tokens

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found; further tokens are ignored."""
        return self._stops.hit is not None

    def feed(self, token: int, logprobs: TokenLogprobs | None = None) -> list[Event]:
        """The events of one more token, in order."""
        if self.stopped:
            return []
        position = self._tokens
        self._tokens += 1
        field = self._route(token)
        if field is None:
            return []
        at_start = self._at_start
        data = self._tokenizer.token_bytes(token, at_start=at_start)
        self._at_start = at_start and not self._tokenizer.token_bytes(token)
        if logprobs is not None and field == "content" and data:
            self._waiting[position] = (token, data, logprobs, at_start)
        return self._emit(field, self._detokenizers[field].feed(position, data))

    def flush(self) -> list[Event]:
        """What is still held back. Call it at most once, after the last token; `finish` includes it."""
        events: list[Event] = []
        if not self.stopped:
            events += self._emit("reasoning", self._detokenizers["reasoning"].finish())
            events += self._emit("content", self._detokenizers["content"].finish())
            events += self._show("content", self._stops.finish())
        return events

    def finish(self, reason: Literal["eos", "length", "stop", "cancelled"]) -> list[Event]:
        """The last events of an answer that the engine ended for `reason` (spec/api.md §4.4)."""
        events = self.flush()
        cut = reason == "length" and not self.stopped
        return [*events, Finished("length" if cut else "stop", self._tokens)]

    def _emit(self, field: Field, pieces: Sequence[Piece]) -> list[Event]:
        if field != "content":
            return self._show(field, pieces)
        events = self._show(field, self._stops.feed(pieces))
        if self._stops.hit is not None:
            events.append(StopHit(self._stops.hit))
        return events

    def _show(self, field: Field, pieces: Sequence[Piece]) -> list[Event]:
        text = "".join(piece.text for piece in pieces)
        if not text:
            return []
        events: list[Event] = [TextDelta(text, field)]
        if field == "content":
            entries: list[LogprobEntry] = []
            for piece in pieces:
                entries += [self._entry(token) for token in piece.tokens if token in self._waiting]
                self._visible_bytes += len(piece.text.encode("utf-8"))
            if entries:
                events.append(LogprobDelta(tuple(entries)))
        return events

    def _entry(self, position: int) -> LogprobEntry:
        token, data, logprobs, at_start = self._waiting.pop(position)
        alternatives = []
        for other, logprob in logprobs.top:
            other_data = self._tokenizer.token_bytes(other, at_start=at_start)
            alternatives.append(TopLogprob(_lossy(other_data), logprob, other_data))
        return LogprobEntry(
            id=token,
            token=_lossy(data),
            logprob=logprobs.logprob,
            data=data,
            top=tuple(alternatives),
            offset=self._visible_bytes,
        )


def _lossy(data: bytes) -> str:
    return data.decode("utf-8", "replace")
