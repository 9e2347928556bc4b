"""What every engine of a comparison is given to do, and what it reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal


@dataclass(frozen=True)
class Work:
    """The cases of one comparison. `tokens` is real text, long enough for every prompt.

    Decode: `streams` prompts of `prompt` tokens each are read first; then `steps` tokens are generated for each, all
    streams together. Prefill: one prompt of each length in `prefill`, up to its first generated token.
    """

    tokens: tuple[int, ...]
    streams: tuple[int, ...] = (1, 4, 8, 16)
    prompt: int = 64
    steps: int = 64
    prefill: tuple[int, ...] = (512, 2048)
    threads: int = 2
    repeats: int = 3

    def prompts(self, streams: int) -> list[list[int]]:
        """A different piece of the text for each stream."""
        stride = (len(self.tokens) - self.prompt) // max(1, streams - 1)
        return [list(self.tokens[i * stride :][: self.prompt]) for i in range(streams)]

    def context(self) -> float:
        """Mean tokens in a stream's cache during its decode steps."""
        return self.prompt + (self.steps + 1) / 2

    def to_json(self) -> str:
        """For a partner's process."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Timing:
    """One engine's times in one case: seconds of a decode step, or of a whole prompt, one for each repeat."""

    engine: str
    kind: Literal["decode", "prefill"]
    size: int  # streams, or tokens of the prompt
    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The fastest repeat: what other work on the machine disturbed least."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The median repeat."""
        return median(self.seconds)

    @staticmethod
    def of_json(engine: str, entry: dict[str, Any]) -> Timing:
        """From a partner's process."""
        return Timing(engine, entry["kind"], int(entry["size"]), tuple(map(float, entry["seconds"])))


def merge(timings: Sequence[Timing]) -> list[Timing]:
    """One timing for each engine and case, with the repeats of all legs, in the order of first appearance."""
    found: dict[tuple[str, str, int], Timing] = {}
    for timing in timings:
        key = (timing.engine, timing.kind, timing.size)
        earlier = found[key].seconds if key in found else ()
        found[key] = Timing(timing.engine, timing.kind, timing.size, earlier + timing.seconds)
    return list(found.values())
