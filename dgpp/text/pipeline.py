"""Generated tokens to events: the one path for streamed and whole answers.

    token -> part (thinking, content, a marker, or hidden) -> bytes -> Detokenizer
          -> thinking: Trimmer -> events
          -> content:  CallParser -> Trimmer -> StopMatcher -> events

Each field has its own detokenizer, so a character cut by a change of field stays in its own. Stop strings look at
visible content alone (spec/api.md §4.3), and tool calls are no part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from dgpp.text.detokenize import Detokenizer, Piece
from dgpp.text.events import (
    CallEvent,
    CallOpened,
    Event,
    Field,
    Finished,
    FinishReason,
    LogprobDelta,
    LogprobEntry,
    Malformed,
    StopHit,
    TextDelta,
    TokenLogprobs,
    TopLogprob,
)
from dgpp.text.reasoning import CLOSER, Reasoning
from dgpp.text.stops import StopMatcher
from dgpp.text.trim import Trimmer


class Vocabulary(Protocol):
    """What the pipeline asks of a tokenizer."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that text does not show."""

    def token_bytes(self, id: int, *, at_start: bool = False) -> bytes:
        """The bytes that a token adds, in the middle or at the start of a text."""


class Calls(Protocol):
    """What the pipeline asks of a parser of tool calls (dgpp/text/tools)."""

    @property
    def markers(self) -> frozenset[int]:
        """Control tokens that are part of the syntax."""

    def feed(self, piece: Piece, marker: bool = False) -> list[Piece | CallEvent]:
        """The visible content and the calls that `piece` completes; `marker` says that it is one of the markers."""

    def finish(self) -> list[Piece | CallEvent]:
        """What is still held back, at the end of the answer."""


class Pipeline:
    """The events of one answer.

    `eos` ids are hidden like the tokenizer's special tokens. `continues` says that the answer carries on the text of
    the prompt (a completion), so that a leading space is kept where the decoder would drop it at the start of a text.
    `reasoning` tells thinking from content, `calls` finds the tool calls in the content; without them all is content.
    `folded` shows the thinking as content, up to and with its closing marker. `lead` is a character before the token
    that opens a call, which is no thinking where that token ends it.
    """

    def __init__(
        self,
        tokenizer: Vocabulary,
        *,
        eos: frozenset[int] = frozenset(),
        stop: Sequence[str] = (),
        continues: bool = False,
        reasoning: Reasoning | None = None,
        calls: Calls | None = None,
        folded: bool = False,
        lead: str = "",
    ) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids | eos
        self._reasoning = reasoning
        self._calls = calls
        self._markers = frozenset() if calls is None else calls.markers
        self._folded = folded
        self._stops = StopMatcher(stop)
        self._detokenizers: dict[Field, Detokenizer] = {"content": Detokenizer(), "reasoning": Detokenizer()}
        self._trims: dict[Field, Trimmer] = {
            "content": Trimmer(holds=calls is not None),
            "reasoning": Trimmer(at_seam=True, lead=lead),
        }
        self._at_start = not continues
        self._tokens = 0
        self._opened = 0  # tool calls
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
        thinking = self._reasoning is not None and self._reasoning.inside
        part = "content" if self._reasoning is None else self._reasoning.take(token)
        if part == "opener":
            return []
        if part == "closer":
            return self._close_reasoning(position)
        before = self._end_thinking(call=True) if thinking and part == "content" else []
        marker = token in self._markers
        if token in self._hidden and not marker:
            return []
        at_start = self._at_start
        data = self._tokenizer.token_bytes(token, at_start=at_start)
        self._at_start = at_start and not self._tokenizer.token_bytes(token)
        field: Field = "reasoning" if part == "reasoning" else "content"
        if logprobs is not None and data and (field == "content" or self._folded):
            self._waiting[position] = (token, data, logprobs, at_start)
        detokenizer = self._detokenizers[field]
        if field == "reasoning":
            return self._think(detokenizer.feed(position, data))
        if not marker:
            return before + self._content(detokenizer.feed(position, data))
        held = self._content(detokenizer.finish())
        return before + held + self._content([Piece(data.decode(), (position,))], marker=True)

    def flush(self) -> list[Event]:
        """What is still held back. Call it at most once, after the last token; `finish` includes it."""
        events: list[Event] = []
        if not self.stopped:
            events += self._end_thinking()
            events += self._content(self._detokenizers["content"].finish())
        if not self.stopped and self._calls is not None:
            events += self._parsed(self._calls.finish())
        if not self.stopped:
            events += self._visible(self._trims["content"].finish())
        if not self.stopped:
            events += self._show("content", self._stops.finish())
        return events

    def finish(self, reason: Literal["eos", "length", "stop", "cancelled"]) -> list[Event]:
        """The last events of an answer that the engine ended for `reason` (spec/api.md §4.4)."""
        events = self.flush()
        if reason == "length" and not self.stopped:
            ended: FinishReason = "length"
        else:
            ended = "tool_calls" if self._opened and reason == "eos" else "stop"
        thought = 0 if self._reasoning is None else self._reasoning.tokens
        return [*events, Finished(ended, self._tokens, thought)]

    def _close_reasoning(self, position: int) -> list[Event]:
        events = self._end_thinking()
        if self._folded:
            return events + self._visible([Piece(CLOSER, (position,))])
        self._trims["content"].seam()
        return events

    def _end_thinking(self, call: bool = False) -> list[Event]:
        """What is still held of the thinking, which ends here: with a `call`, with its marker, or with the answer."""
        events = self._think(self._detokenizers["reasoning"].finish())
        return events + self._show("reasoning", self._trims["reasoning"].rest(call))

    def _think(self, pieces: Sequence[Piece]) -> list[Event]:
        if self._folded:
            return self._visible(pieces)
        return self._show("reasoning", self._trims["reasoning"].feed(pieces))

    def _content(self, pieces: Sequence[Piece], marker: bool = False) -> list[Event]:
        """Content as the model wrote it, its tool calls among it."""
        if self._calls is None:
            return self._visible(self._trims["content"].feed(pieces))
        events: list[Event] = []
        for piece in pieces:
            if not self.stopped:
                events += self._parsed(self._calls.feed(piece, marker))
        return events

    def _parsed(self, found: Iterable[Piece | CallEvent]) -> list[Event]:
        events: list[Event] = []
        for item in found:
            if self.stopped:
                break
            if isinstance(item, Piece):
                events += self._visible(self._trims["content"].feed([item]))
                continue
            if isinstance(item, CallOpened):
                self._opened += 1
            if not isinstance(item, Malformed):
                self._trims["content"].seam()
            events.append(item)
        return events

    def _visible(self, pieces: Sequence[Piece]) -> list[Event]:
        """Content as the client sees it, up to a stop string."""
        if self._reasoning is not None and any(piece.text.strip() for piece in pieces):
            self._reasoning.said()
        events = self._show("content", self._stops.feed(pieces))
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
