"""What a generated answer is made of: text deltas, log-probabilities, a stop-string hit, and the finish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Field = Literal["content", "reasoning"]
FinishReason = Literal["stop", "length"]


class TokenLogprobs(Protocol):
    """The log-probability of one generated token, and the likeliest ids with theirs (descending)."""

    @property
    def logprob(self) -> float: ...

    @property
    def top(self) -> Sequence[tuple[int, float]]: ...


@dataclass(frozen=True)
class TopLogprob:
    """One alternative at a token's place. `token` is `data` as text, invalid UTF-8 replaced."""

    token: str
    logprob: float
    data: bytes


@dataclass(frozen=True)
class LogprobEntry:
    """One token of which at least one byte is visible content (spec/api.md §4.1).

    `token` is `data` as text, invalid UTF-8 replaced; `data` holds all of the token's bytes, also those that a stop
    string hides. `offset` counts the UTF-8 bytes of visible content before the first visible one of this token.
    """

    id: int
    token: str
    logprob: float
    data: bytes
    top: tuple[TopLogprob, ...]
    offset: int


@dataclass(frozen=True)
class TextDelta:
    """More text of one field; never empty, never half a character."""

    text: str
    field: Field = "content"


@dataclass(frozen=True)
class LogprobDelta:
    """The entries of tokens that have just become visible, after the text delta that shows them."""

    entries: tuple[LogprobEntry, ...]


@dataclass(frozen=True)
class StopHit:
    """A stop string was completed by the last token fed; nothing more will be shown, so the request may be ended."""

    stop: str


@dataclass(frozen=True)
class Finished:
    """The last event. `completion_tokens` counts the tokens up to the one that ended the answer (EOS included)."""

    reason: FinishReason
    completion_tokens: int


Event = TextDelta | LogprobDelta | StopHit | Finished


@dataclass(frozen=True)
class Answer:
    """A whole answer: what a client sees that does not stream."""

    content: str
    reasoning: str
    logprobs: tuple[LogprobEntry, ...]
    stop: str | None  # the stop string that ended it
    finish_reason: FinishReason | None  # None: the events end before Finished
    completion_tokens: int


def collect(events: Iterable[Event]) -> Answer:
    """The answer that a sequence of events adds up to."""
    text: dict[Field, list[str]] = {"content": [], "reasoning": []}
    entries: list[LogprobEntry] = []
    stop: str | None = None
    finished: Finished | None = None
    for event in events:
        match event:
            case TextDelta():
                text[event.field].append(event.text)
            case LogprobDelta():
                entries.extend(event.entries)
            case StopHit():
                stop = event.stop
            case Finished():
                finished = event
    return Answer(
        content="".join(text["content"]),
        reasoning="".join(text["reasoning"]),
        logprobs=tuple(entries),
        stop=stop,
        finish_reason=finished.reason if finished else None,
        completion_tokens=finished.completion_tokens if finished else 0,
    )
