"""Replays an answer under every way of cutting it into tokens."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hypothesis import settings

from dgpp.text.events import Answer, CallArguments, Event, LogprobEntry, Malformed, TextDelta, collect
from dgpp.text.pipeline import Pipeline

EXHAUSTIVE = 128  # partitions up to which all are replayed
SAMPLES = 40  # else so many, and the two extremes

few = settings(deadline=None, max_examples=40)  # each example is replayed many times

Item = bytes | int  # text to be cut anywhere, or a token by its id (a marker)


@dataclass
class Spelled:
    """A vocabulary that has a token for every byte string; ids are given as they are asked for."""

    special_ids: frozenset[int] = frozenset()
    markers: dict[int, bytes] = field(default_factory=dict)
    _ids: dict[bytes, int] = field(default_factory=dict)
    _bytes: dict[int, bytes] = field(default_factory=dict)

    def id(self, data: bytes) -> int:
        """The token that spells `data`."""
        id = self._ids.setdefault(data, 1000 + len(self._ids))
        self._bytes[id] = data
        return id

    def token_bytes(self, id: int, *, at_start: bool = False) -> bytes:
        return self.markers[id] if id in self.markers else self._bytes[id]


@dataclass(frozen=True)
class Logprob:
    """Stands for what an engine reports; the value tells the tokens apart."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Replay:
    """One way of cutting, and what came of it."""

    tokens: tuple[int, ...]
    steps: tuple[tuple[Event, ...], ...]  # the events of each token, then those of the finish
    answer: Answer

    def entries(self) -> tuple[LogprobEntry, ...]:
        return self.answer.logprobs


def partitions(data: bytes, seed: int = 0, samples: int = SAMPLES) -> Iterator[list[bytes]]:
    """Ways of cutting `data` into non-empty parts: all of them when they are few, else `samples` and both extremes."""
    places = len(data) - 1
    if places < 0:
        yield []
    elif 2**places <= min(EXHAUSTIVE, 4 * samples):
        for cuts in itertools.product((False, True), repeat=places):
            yield _cut(data, cuts)
    else:
        draw = random.Random(seed)
        yield _cut(data, [True] * places)
        yield _cut(data, [False] * places)
        for _ in range(samples):
            density = draw.random()
            yield _cut(data, [draw.random() < density for _ in range(places)])


def replays(
    items: Sequence[Item],
    vocabulary: Spelled,
    make: Callable[[], Pipeline],
    reason: str = "eos",
    seed: int = 0,
    samples: int = SAMPLES,
) -> Iterator[Replay]:
    """The answer under every cutting of its text items (of several text items: their cuttings side by side, the
    shorter lists of them repeated)."""
    cuttings = [list(partitions(item, seed, samples)) if isinstance(item, bytes) else [[item]] for item in items]
    for at in range(max(map(len, cuttings))):
        flat = [part for ways in cuttings for part in ways[at % len(ways)]]
        tokens = tuple(vocabulary.id(part) if isinstance(part, bytes) else part for part in flat)
        pipeline = make()
        steps = [tuple(pipeline.feed(token, Logprob(-float(at)))) for at, token in enumerate(tokens)]
        steps.append(tuple(pipeline.finish(reason)))  # type: ignore[arg-type]
        yield Replay(tokens, tuple(steps), collect(event for step in steps for event in step))


def _cut(data: bytes, cuts: Sequence[bool]) -> list[bytes]:
    places = [0, *(at + 1 for at, here in enumerate(cuts) if here), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places)]


def check_every_split(
    items: Sequence[Item],
    vocabulary: Spelled,
    make: Callable[[], Pipeline],
    reason: str = "eos",
    seed: int = 0,
    samples: int = SAMPLES,
) -> Answer:
    """The answer, after asserting that its texts, calls, stop string and finish do not depend on the cutting, that
    deltas are never empty, and that each delta is whole text.

    The answer returned is that of the first cutting; `logprobs` and `completion_tokens` belong to it.
    """
    seen: dict[tuple[object, ...], Replay] = {}
    first: Answer | None = None
    for replay in replays(items, vocabulary, make, reason, seed, samples):
        first = first or replay.answer
        answer = replay.answer
        events = [event for step in replay.steps for event in step]
        malformed = tuple(event for event in events if isinstance(event, Malformed))
        key = (answer.content, answer.reasoning, answer.calls, malformed, answer.stop, answer.finish_reason)
        seen.setdefault(key, replay)
        for event in events:
            if isinstance(event, TextDelta | CallArguments):
                assert event.text
                event.text.encode("utf-8")
    assert first is not None, "nothing was replayed"
    assert len(seen) == 1, f"the answer depends on the cutting: {[(key, one.tokens) for key, one in seen.items()]}"
    return first
