"""What a generated answer is made of: text deltas, tool calls, log-probabilities, a stop-string hit, and the finish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

Field = Literal["content", "reasoning"]
FinishReason = Literal["stop", "length", "tool_calls"]
ToolKind = Literal["function", "custom"]


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
class CallOpened:
    """A tool call begins: its place among the calls of the answer, from 0, and the tool it names."""

    index: int
    name: str
    kind: ToolKind = "function"


@dataclass(frozen=True)
class CallArguments:
    """More of an open call: of the JSON text of its arguments, or of the raw input of a custom tool; never empty."""

    index: int
    text: str


@dataclass(frozen=True)
class CallClosed:
    """The call is complete; without this event its arguments were cut off."""

    index: int


@dataclass(frozen=True)
class Malformed:
    """A tool call that could not be read. What it said is content, so that nothing is lost; `reason` is for the log."""

    reason: str


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
    """The last event. `completion_tokens` counts the tokens up to the one that ended the answer (EOS included),
    `reasoning_tokens` those of them that were thinking, its markers with them."""

    reason: FinishReason
    completion_tokens: int
    reasoning_tokens: int = 0


CallEvent = CallOpened | CallArguments | CallClosed | Malformed
Event = TextDelta | CallEvent | LogprobDelta | StopHit | Finished


@dataclass(frozen=True)
class Call:
    """A tool call of an answer. `arguments` is JSON text, or the raw input of a custom tool; `complete` is False where
    the answer was cut off inside them."""

    name: str
    arguments: str
    kind: ToolKind = "function"
    complete: bool = True


@dataclass(frozen=True)
class Answer:
    """A whole answer: what a client sees that does not stream."""

    content: str
    reasoning: str
    logprobs: tuple[LogprobEntry, ...]
    stop: str | None  # the stop string that ended it
    finish_reason: FinishReason | None  # None: the events end before Finished
    completion_tokens: int
    reasoning_tokens: int = 0
    calls: tuple[Call, ...] = ()


def collect(events: Iterable[Event]) -> Answer:
    """The answer that a sequence of events adds up to."""
    text: dict[Field, list[str]] = {"content": [], "reasoning": []}
    entries: list[LogprobEntry] = []
    stop: str | None = None
    finished: Finished | None = None
    calls: list[Call] = []
    for event in events:
        match event:
            case TextDelta():
                text[event.field].append(event.text)
            case CallOpened():
                calls.append(Call(event.name, "", event.kind, complete=False))
            case CallArguments():
                calls[event.index] = replace(calls[event.index], arguments=calls[event.index].arguments + event.text)
            case CallClosed():
                calls[event.index] = replace(calls[event.index], complete=True)
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
        reasoning_tokens=finished.reasoning_tokens if finished else 0,
        calls=tuple(calls),
    )
