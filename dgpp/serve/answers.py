"""Pieces that the answers of both endpoints share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from dgpp.serve.turn import Failed, Turn
from dgpp.text.events import Answer, Event, collect

LOWEST_LOGPROB = -9999.0
"""What stands for minus infinity, which JSON cannot carry."""


class Ended(Protocol):
    """What is counted of an answer."""

    @property
    def completion_tokens(self) -> int: ...

    @property
    def reasoning_tokens(self) -> int: ...


def usage(turn: Turn, choices: Iterable[Ended]) -> dict[str, Any]:
    """The `usage` object; prompt tokens are counted once, the others over all choices."""
    ended = list(choices)
    completion = sum(choice.completion_tokens for choice in ended)
    return {
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": turn.prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": turn.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": sum(choice.reasoning_tokens for choice in ended)},
    }


def answers(turn: Turn) -> list[Answer]:
    """The whole answer of every choice. Raises ApiError when the turn fails."""
    events: list[list[Event]] = [[] for _ in range(len(turn))]
    for step in turn.events():
        if isinstance(step, Failed):
            raise step.error
        if step is not None:
            events[step.index] += step.events
    return [collect(choice) for choice in events]


def wire_logprob(logprob: float) -> float:
    """A log-probability as JSON can carry it."""
    return max(logprob, LOWEST_LOGPROB)
