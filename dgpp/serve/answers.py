"""Pieces that the answers of both endpoints share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dgpp.serve.turn import Failed, Turn
from dgpp.text.events import Answer, Event, collect

LOWEST_LOGPROB = -9999.0
"""What stands for minus infinity, which JSON cannot carry."""


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """The `usage` object; prompt tokens are counted once, completion tokens over all choices."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
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


def completion_tokens(choices: Iterable[Answer]) -> int:
    """Generated tokens over all choices."""
    return sum(answer.completion_tokens for answer in choices)


def wire_logprob(logprob: float) -> float:
    """A log-probability as JSON can carry it."""
    return max(logprob, LOWEST_LOGPROB)
